//! `dispatchq bench rebuild`: Redis is flushed while very many orders are open. How long until all timers are back, when does the
//! fleet take the first of them, and is one lost, early or run twice?
//!
//! * `fill`: the orders, and drivers to serve some of them. `watch`: from the flush to the epoch. `at_rest`: what they cost after that.
//! * `verify`: what must never be.
//! * `report`: goals, table, JSON.

mod at_rest;
mod fill;
mod report;
mod verify;
mod watch;

use std::num::NonZeroU32;

use anyhow::{Context, bail};
use clap::Args;
use dispatch::config::Config;

use self::{at_rest::FiguresAtRest, report::RebuildReport, watch::RebuildFigures};
use super::machine::{MachineInfo, SoftwareVersions};
use crate::testbed::{Testbed, TestbedSettings, print, settings::free_port, signals::wait_for_interrupt};

#[derive(Debug, Clone, Args)]
#[command(after_help = "Example:\n  dispatchq bench rebuild --orders 250000 --json > rebuild.json")]
pub struct RebuildOptions {
    /// Open orders, each with two timers
    #[arg(long, value_name = "N", default_value = "250000")]
    pub orders: NonZeroU32,

    /// Print one JSON object; the table goes to stderr
    #[arg(long)]
    pub json: bool,
}

/// Measures and prints. Returns whether no timer was lost, early or run twice; speed is reported and never judged.
pub async fn run(options: RebuildOptions) -> anyhow::Result<bool> {
    let report = tokio::select! {
        report = measure_rebuild(&options) => report?,
        name = wait_for_interrupt() => bail!("the measurement was interrupted by {name}"),
    };
    print::print_report(&report.to_text(), &report.to_json(), options.json)?;
    Ok(report.violations.is_empty())
}

async fn measure_rebuild(options: &RebuildOptions) -> anyhow::Result<RebuildReport> {
    let (machine, versions) = (MachineInfo::read_system(), SoftwareVersions::read_versions().await?);
    let settings = TestbedSettings {
        speed: 1.0,
        serves: 1,
        workers: 1,
        for_faults: false,
        offers: None,
        alerts: None,
        partner: None,
        durable: false,
    };
    let shown = |config: &mut Config| config.http.admin_bind = format!("127.0.0.1:{}", free_port());
    let mut testbed = Testbed::start_with(&settings, shown).await?;
    let measured = flush_and_watch(options, &testbed).await;
    if measured.is_err() {
        testbed.dir.keep_files();
    }
    let (seen, at_rest, mut violations) =
        measured.with_context(|| format!("the measurement failed; logs: {}", testbed.dir.path().display()))?;
    let (processes, _app, _redis, _postgres, _dir) = testbed.into_parts();
    violations.extend(processes.stop().await);
    Ok(RebuildReport { orders: options.orders.get(), seen, at_rest, violations, machine, versions })
}

async fn flush_and_watch(
    options: &RebuildOptions,
    testbed: &Testbed,
) -> anyhow::Result<(RebuildFigures, FiguresAtRest, Vec<String>)> {
    fill::fill_orders(&testbed.postgres.url(), &testbed.app.db, options.orders.get()).await?;
    let worker = testbed.processes.worker_pids().next().context("there is no worker")?;
    let seen = watch::watch_rebuild(&testbed.app, worker).await?;
    let at_rest = at_rest::measure_at_rest(testbed, worker).await?;
    let violations = verify::find_violations(&testbed.app).await?;
    Ok((seen, at_rest, violations))
}
