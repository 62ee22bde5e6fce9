//! Report of a replay, as text or as one JSON object.

use std::{collections::BTreeMap, path::PathBuf};

use serde::Serialize;

use super::{admission::AdmissionSummary, measure::TimeToDriver, options::SupplyStrategy};
use crate::{
    bench::frame::{add_table_row, table_with_header, verdict_text},
    testbed::{ConsoleLogin, KeptServers, figures::JobLateness},
};
use partner_sim::counters::SimulationCounters;

#[derive(Debug, Serialize)]
pub(super) struct ReplayReport {
    pub(super) orders: u64,
    /// Skipped rows by reason.
    pub(super) skipped: BTreeMap<&'static str, u64>,
    /// Orders that their areas refused, by request kind and error code.
    pub(super) refused: BTreeMap<String, u64>,
    /// Results of admission requests, as all sources count them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) admission: Option<AdmissionSummary>,
    pub(super) strategy: SupplyStrategy,
    /// Number of drivers of your own fleet.
    pub(super) drivers: usize,
    pub(super) workers: usize,
    pub(super) speed: f64,
    pub(super) seed: u64,
    /// Time from the first creation to rest.
    pub(super) wall_seconds: f64,
    pub(super) outcomes: BTreeMap<String, u64>,
    /// Orders among these that wait for a person's decision.
    pub(super) held: u64,
    /// Orders by number of attempts.
    pub(super) attempts: BTreeMap<i32, u64>,
    pub(super) time_to_driver_s: TimeToDriver,
    pub(super) lateness_ms: JobLateness,
    pub(super) repairs: i64,
    pub(super) kills: u64,
    pub(super) driver_answers: BTreeMap<String, u64>,
    /// Delivered alerts by channel.
    pub(super) alerts: BTreeMap<String, u64>,
    /// Bookings with the partner by state.
    pub(super) bookings: BTreeMap<String, u64>,
    /// Counters of the partner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) partner: Option<SimulationCounters>,
    pub(super) violations: Vec<String>,
    /// Remark on how to read the figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<String>,
    #[serde(flatten)]
    pub(super) kept: Option<KeptServers>,
    /// Directory of the logs, if they were kept because of violations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) logs: Option<PathBuf>,
}

impl ReplayReport {
    /// Returns whether there is no violation.
    pub(super) fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }

    /// Formats the report as tables.
    pub(super) fn to_text(&self) -> String {
        let seconds = |s: Option<f64>| s.map_or_else(|| "-".to_owned(), |s| format!("{s:.1} s"));
        let mut outcomes: Vec<_> = self.outcomes.iter().map(|(status, n)| (status.clone(), n.to_string())).collect();
        if self.held > 0 {
            outcomes.push(("of these held for a person".to_owned(), self.held.to_string()));
        }
        let mut parts = vec![
            format!(
                "{} orders in {:.1} s at speed {}, {}, {} worker processes, seed {}",
                self.orders,
                self.wall_seconds,
                self.speed,
                self.who_drives(),
                self.workers,
                self.seed
            ),
            pairs_table("outcome", "orders", outcomes),
            counts_table("attempts", "orders", &self.attempts),
        ];
        for (name, unit, counts) in [
            ("refused by their areas", "orders", &self.refused),
            ("drivers", "times", &self.driver_answers),
            ("bookings with the partner", "", &self.bookings),
            ("alerts, by channel", "", &self.alerts),
        ] {
            if !counts.is_empty() {
                parts.push(counts_table(name, unit, counts));
            }
        }
        parts.extend(self.admission.as_ref().map(AdmissionSummary::to_text));
        if !self.skipped.is_empty() {
            parts.push(counts_table("rows skipped", "rows", &self.skipped));
        }
        let late = &self.lateness_ms;
        let measured = [
            ("time to driver p50, in the order's time", seconds(self.time_to_driver_s.p50)),
            ("time to driver p95, in the order's time", seconds(self.time_to_driver_s.p95)),
            ("lateness of jobs p50 / p99 / max", format!("{} / {} / {} ms", late.p50, late.p99, late.max)),
            ("jobs run", late.jobs.to_string()),
            ("workers killed", self.kills.to_string()),
            ("timers repaired", self.repairs.to_string()),
            ("violations", self.violations.len().to_string()),
        ];
        parts.push(pairs_table("measured", "", measured.map(|(name, value)| (name.to_owned(), value))));
        if let Some(kept) = &self.kept {
            parts.push(left_running(kept));
        }
        parts.extend(self.note.clone());
        parts.push(self.verdict_text());
        parts.join("\n")
    }

    fn who_drives(&self) -> String {
        match self.strategy {
            SupplyStrategy::Fleet => format!("{} drivers", self.drivers),
            SupplyStrategy::Partner => "a partner".to_owned(),
        }
    }

    fn verdict_text(&self) -> String {
        if self.is_clean() {
            return "The history is clean: no invariant was violated.".to_owned();
        }
        verdict_text(&self.violations, self.logs.as_deref())
    }
}

/// Describes the servers that were left running, and how to end them.
fn left_running(kept: &KeptServers) -> String {
    let KeptServers { database_url, redis_url, pids, dirs: [postgres_dir, redis_dir], config, console } = kept;
    let (postgres, redis) = (pids.postgres, pids.redis);
    let run_dir = config.parent().unwrap_or(config);
    let console = console.as_ref().map_or_else(String::new, |console| {
        let ConsoleLogin { url, key } = console;
        format!(
            "Console:      dispatchq serve --config {}\n              {url} (sign in with {key})\n              {}\n",
            config.display(),
            console.sign_in_link()
        )
    });
    format!(
        "Left running: Postgres at {database_url}\n              Redis at {redis_url}\n\
         List orders:  dispatchq order list --config {}\n{console}\
         End it:       kill -INT {postgres} {redis}; rm -r {} {} {}",
        config.display(),
        postgres_dir.display(),
        redis_dir.display(),
        run_dir.display()
    )
}

fn counts_table<K: ToString>(name: &str, unit: &str, counts: &BTreeMap<K, u64>) -> String {
    pairs_table(name, unit, counts.iter().map(|(key, count)| (key.to_string(), count.to_string())))
}

fn pairs_table(name: &str, unit: &str, pairs: impl IntoIterator<Item = (String, String)>) -> String {
    let mut table = table_with_header(&[name, unit]);
    for (key, value) in pairs {
        add_table_row(&mut table, &[&key, &value]);
    }
    table.to_string()
}
