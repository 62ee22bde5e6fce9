//! `dispatchq bench rebuild`: flushes Redis while many orders are open. It measures the time until all timers are
//! restored, and until the workers take the first of them.
//!
//! * `fill`: the orders, and drivers for some of them. `watch`: from the flush to the epoch. `at_rest`: cost after the
//!   rebuild.
//! * `verify`: errors that must never occur.

mod at_rest;
mod fill;
mod verify;
mod watch;

use std::num::NonZeroU32;

use anyhow::Context;
use clap::Args;
use serde_json::json;

use self::{at_rest::FiguresAtRest, watch::RebuildFigures};
use super::{
    frame::{Bound, Figures, Measure},
    machine::bytes_as_mib,
    spread::round_to_digits,
};
use crate::testbed::{Testbed, TestbedSettings, settings::free_port};
use settings::Config;

/// Goal for 250,000 orders.
const GOAL_S: f64 = 10.0;

#[derive(Debug, Clone, Args)]
#[command(after_help = "Example:\n  dispatchq bench rebuild --orders 250000 --json > rebuild.json")]
pub struct RebuildOptions {
    /// Number of open orders, each with two timers
    #[arg(long, value_name = "N", default_value = "250000")]
    pub orders: NonZeroU32,

    /// Print one JSON object; the table goes to stderr
    #[arg(long)]
    pub json: bool,
}

impl Measure for RebuildOptions {
    fn prints_json(&self) -> bool {
        self.json
    }

    async fn measure(&self) -> anyhow::Result<Figures> {
        let shown = |config: &mut Config| config.http.admin_bind = format!("127.0.0.1:{}", free_port());
        let mut testbed = Testbed::start_with(&TestbedSettings::default(), shown).await?;
        let measured = flush_and_watch(self, &testbed).await;
        let (seen, at_rest, violations) = testbed.dir.keep_if_failed(measured)?;
        let ended = testbed.end_processes(violations).await;
        let [rebuild_s, first_taken_s] =
            [seen.whole, seen.first_taken].map(|time| round_to_digits(time.as_secs_f64(), 2));
        let mut figures = Figures::new(json!({
            "orders": self.orders,
            "timers": seen.timers,
            "rebuild_s": rebuild_s,
            "first_horizon_s": round_to_digits(seen.horizon.as_secs_f64(), 2),
            "first_taken_s": first_taken_s,
            "timers_per_s": (seen.timers as f64 / seen.whole.as_secs_f64().max(f64::EPSILON)).round(),
            "reconciler_mib": seen.grown_bytes.map(bytes_as_mib),
            "look_s": round_to_digits(at_rest.look.as_secs_f64(), 2),
            "scrape_ms": round_to_digits(at_rest.scrape.as_secs_f64() * 1000.0, 1),
            "serve_mib": at_rest.serve_bytes.map(bytes_as_mib),
            "worker_mib": at_rest.worker_bytes.map(bytes_as_mib),
        }));
        figures.goal("rebuild_s", rebuild_s, Bound::AtMost(GOAL_S));
        // Workers take jobs before all timers are restored.
        figures.goal("first_taken_s", first_taken_s, Bound::Below(rebuild_s));
        figures.violations = ended.violations;
        Ok(figures)
    }
}

async fn flush_and_watch(
    options: &RebuildOptions,
    testbed: &Testbed,
) -> anyhow::Result<(RebuildFigures, FiguresAtRest, Vec<String>)> {
    fill::fill_orders(&testbed.postgres.url(), &testbed.app.core.db, options.orders.get()).await?;
    let worker = testbed.processes.worker_pids().next().context("there is no worker")?;
    let seen = watch::watch_rebuild(&testbed.app.core, worker).await?;
    let at_rest = at_rest::measure_at_rest(testbed, worker).await?;
    let violations = verify::find_violations(&testbed.app.core).await?;
    Ok((seen, at_rest, violations))
}
