//! What came of a replay, for people or as one JSON object.

use std::{collections::BTreeMap, path::PathBuf};

use comfy_table::{Cell, CellAlignment, Table, presets::UTF8_BORDERS_ONLY};
use serde::Serialize;

use super::{
    admission::AdmissionSummary,
    measure::TimeToDriver,
    options::{AdmissionMode, SupplyStrategy},
};
use crate::testbed::{ConsoleLogin, KeptServers, figures::JobLateness};
use partner_sim::counters::SimulationCounters;

#[derive(Debug, Serialize)]
pub(super) struct ReplayReport {
    pub(super) orders: u64,
    /// Rows that were no orders, by reason.
    pub(super) skipped: BTreeMap<&'static str, u64>,
    /// Orders that their areas refused, by what was asked and the code of the answer.
    pub(super) refused: BTreeMap<String, u64>,
    /// What became of requests for places in areas, as all who count it have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) admission: Option<AdmissionSummary>,
    pub(super) strategy: SupplyStrategy,
    /// Simulated drivers of our own.
    pub(super) drivers: usize,
    pub(super) workers: usize,
    pub(super) speed: f64,
    pub(super) seed: u64,
    /// From the first creation to rest.
    pub(super) wall_seconds: f64,
    pub(super) outcomes: BTreeMap<String, u64>,
    /// Of these, orders that a person must decide on.
    pub(super) held: u64,
    /// Orders by number of attempts.
    pub(super) attempts: BTreeMap<i32, u64>,
    pub(super) time_to_driver_s: TimeToDriver,
    pub(super) lateness_ms: JobLateness,
    pub(super) repairs: i64,
    pub(super) kills: u64,
    pub(super) driver_answers: BTreeMap<String, u64>,
    /// Alerts delivered, by channel.
    pub(super) alerts: BTreeMap<String, u64>,
    /// Bookings made with the partner, by state.
    pub(super) bookings: BTreeMap<String, u64>,
    /// What the partner saw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) partner: Option<SimulationCounters>,
    pub(super) violations: Vec<String>,
    /// What one should know to read the figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<String>,
    #[serde(flatten)]
    pub(super) kept: Option<KeptServers>,
    /// Logs of the processes, where they were kept because something is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) logs: Option<PathBuf>,
}

impl ReplayReport {
    /// No violation.
    pub(super) fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }

    /// Tables for people.
    pub(super) fn to_text(&self) -> String {
        let seconds = |s: Option<f64>| s.map_or_else(|| "-".to_owned(), |s| format!("{s:.1} s"));
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
            self.outcome_table().to_string(),
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
        parts.extend(self.admission.as_ref().map(places_text));
        if !self.skipped.is_empty() {
            parts.push(counts_table("rows skipped", "rows", &self.skipped));
        }
        let late = &self.lateness_ms;
        parts.push(pairs_table(
            "measured",
            [
                ("time to driver p50, in the order's time", seconds(self.time_to_driver_s.p50)),
                ("time to driver p95, in the order's time", seconds(self.time_to_driver_s.p95)),
                ("lateness of jobs p50 / p99 / max", format!("{} / {} / {} ms", late.p50, late.p99, late.max)),
                ("jobs run", late.jobs.to_string()),
                ("workers killed", self.kills.to_string()),
                ("timers repaired", self.repairs.to_string()),
                ("violations", self.violations.len().to_string()),
            ],
        ));
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

    fn outcome_table(&self) -> Table {
        let mut table = table_with_header("outcome", "orders");
        for (status, orders) in &self.outcomes {
            add_table_row(&mut table, status, &orders.to_string());
        }
        if self.held > 0 {
            add_table_row(&mut table, "of these held for a person", &self.held.to_string());
        }
        table
    }

    fn verdict_text(&self) -> String {
        if self.is_clean() {
            return "The history is clean: no invariant was violated.".to_owned();
        }
        let mut lines = vec![format!("{} violations:", self.violations.len())];
        lines.extend(self.violations.iter().map(|violation| format!("  {violation}")));
        lines.extend(self.logs.as_ref().map(|dir| format!("logs of the processes: {}", dir.display())));
        lines.join("\n")
    }
}

/// Where everything is, and how to end it.
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
         Look around:  dispatchq order list --config {}\n{console}\
         End it:       kill -INT {postgres} {redis}; rm -r {} {} {}",
        config.display(),
        postgres_dir.display(),
        redis_dir.display(),
        run_dir.display()
    )
}

/// What became of requests for places, by area.
fn places_text(summary: &AdmissionSummary) -> String {
    let mode = match summary.mode {
        AdmissionMode::Enforced => "enforced",
        AdmissionMode::Shadow => "in shadow",
    };
    let (headings, rows) = summary.table_rows();
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header(headings);
    for row in rows {
        table.add_row(row);
    }
    format!("Thresholds {mode}, by area:\n{table}\n{}", summary.compared_text())
}

fn counts_table<K: ToString>(name: &str, unit: &str, counts: &BTreeMap<K, u64>) -> String {
    let mut table = table_with_header(name, unit);
    for (key, count) in counts {
        add_table_row(&mut table, &key.to_string(), &count.to_string());
    }
    table.to_string()
}

fn pairs_table<const N: usize>(name: &str, pairs: [(&str, String); N]) -> String {
    let mut table = table_with_header(name, "");
    for (key, value) in pairs {
        add_table_row(&mut table, key, &value);
    }
    table.to_string()
}

fn table_with_header(name: &str, unit: &str) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header([Cell::new(name), Cell::new(unit).set_alignment(CellAlignment::Right)]);
    table
}

fn add_table_row(table: &mut Table, key: &str, value: &str) {
    table.add_row([Cell::new(key), Cell::new(value).set_alignment(CellAlignment::Right)]);
}

#[cfg(test)]
mod tests {
    use super::{super::admission::fixture, *};

    fn report() -> ReplayReport {
        ReplayReport {
            orders: 3,
            skipped: BTreeMap::from([("unknown_zone", 2)]),
            refused: BTreeMap::new(),
            admission: None,
            strategy: SupplyStrategy::Fleet,
            drivers: 20,
            workers: 2,
            speed: 60.0,
            seed: 1,
            wall_seconds: 1.25,
            outcomes: BTreeMap::from([("COMPLETED".to_owned(), 2), ("COMPENSATING".to_owned(), 1)]),
            held: 1,
            attempts: BTreeMap::from([(1, 2), (10, 1)]),
            time_to_driver_s: TimeToDriver { p50: Some(20.5), p95: None },
            lateness_ms: JobLateness { p50: 1, p99: 5, max: 9, jobs: 12 },
            repairs: 0,
            kills: 0,
            driver_answers: BTreeMap::from([("accepted".to_owned(), 2)]),
            alerts: BTreeMap::from([("log".to_owned(), 1)]),
            bookings: BTreeMap::new(),
            partner: None,
            violations: vec![],
            note: None,
            kept: None,
            logs: None,
        }
    }

    #[test]
    fn the_json_is_one_flat_object_of_known_names() {
        let json = serde_json::to_value(report()).unwrap();
        assert_eq!(json["skipped"]["unknown_zone"], 2);
        assert_eq!(json["attempts"]["10"], 1);
        assert_eq!(json["time_to_driver_s"]["p95"], serde_json::Value::Null);
        assert_eq!(json["lateness_ms"]["p99"], 5);
        assert_eq!((&json["strategy"], &json["alerts"]["log"]), (&"fleet".into(), &1.into()));
        assert_eq!(json["violations"], serde_json::json!([]));
        assert!(json.get("database_url").is_none() && json.get("logs").is_none());
    }

    #[test]
    fn a_kept_run_says_where_it_is() {
        let pids = crate::testbed::ServerPids { postgres: 7, redis: 8 };
        let dirs = ["/pg".into(), "/redis".into()];
        let config = "/run/config.toml".into();
        let console = ConsoleLogin { url: "http://127.0.0.1:1/console".into(), key: "dq_0".into() };
        let console = Some(console);
        let kept = KeptServers { database_url: "pg".into(), redis_url: "r".into(), pids, dirs, config, console };
        let report = ReplayReport { kept: Some(kept), ..report() };
        let text = report.to_text();
        assert!(text.contains("kill -INT 7 8; rm -r /pg /redis /run"), "{text}");
        assert!(text.contains("Console:      dispatchq serve --config /run/config.toml\n"), "{text}");
        assert!(text.contains("http://127.0.0.1:1/console (sign in with dq_0)\n"), "{text}");
        assert!(text.contains("http://127.0.0.1:1/console/login#key=dq_0\n"), "{text}");
        let json = serde_json::to_value(report).unwrap();
        assert_eq!((&json["database_url"], &json["pids"]["redis"]), (&"pg".into(), &8.into()));
        assert_eq!(json["console"]["key"], "dq_0");
    }

    #[test]
    fn areas_are_shown_by_who_counted() {
        let report = ReplayReport { admission: Some(fixture::example_summary()), ..report() };
        assert!(report.to_text().contains("Thresholds enforced, by area:"), "{}", report.to_text());
        let json = serde_json::to_value(report).unwrap();
        let docks = &json["admission"]["counted_by"]["counts"]["DOCKS"];
        assert_eq!((&docks["checks_refused"], &docks["waiting_met"]), (&2.into(), &16.into()));
        assert_eq!((&json["admission"]["mode"], &json["admission"]["threshold"]), (&"enforced".into(), &4.into()));
    }

    #[test]
    fn people_see_the_verdict() {
        assert!(report().to_text().ends_with("no invariant was violated."));
        let bad = ReplayReport { violations: vec!["one_driver_per_order: O1: 2".into()], ..report() };
        assert!(!bad.is_clean());
        assert!(bad.to_text().contains("1 violations:\n  one_driver_per_order: O1: 2"));
    }
}
