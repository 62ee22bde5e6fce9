//! What was measured, for people or as one JSON object.

use std::{collections::BTreeMap, path::PathBuf};

use comfy_table::Table;
use serde_json::{Map, Value, json};

use super::measure::LifeMeasures;
use crate::{
    bench::{
        collector::SentTraces,
        machine::{MachineInfo, SoftwareVersions},
        orders::OrdersOptions,
        processor::ProcessorUse,
        spread::round_to_digits,
        tables::{add_table_row, counts_table, table_with_header},
    },
    testbed::api::AnswerTimes,
};

/// A rate is held when jobs were no later, in milliseconds at the 99th percentile,
const HELD_LATENESS_MS: u64 = 100;
/// and the last order ended no later than this after it was created, in seconds.
const HELD_REST_S: f64 = 10.0;

#[derive(Debug)]
pub(super) struct LivesReport {
    pub(super) options: OrdersOptions,
    pub(super) machine: MachineInfo,
    pub(super) versions: SoftwareVersions,
    pub(super) drivers: usize,
    pub(super) created: u64,
    pub(super) creating_seconds: f64,
    pub(super) measures: LifeMeasures,
    /// By what was asked.
    pub(super) answer_times: BTreeMap<String, AnswerTimes>,
    pub(super) driver_answers: BTreeMap<String, u64>,
    pub(super) processor: ProcessorUse,
    /// What was sent to the collector of traces, if there was one.
    pub(super) traces: Option<SentTraces>,
    /// What the other system's program says.
    pub(super) peer: Option<Value>,
    pub(super) violations: Vec<String>,
    /// Logs of the processes, where they were kept because something is wrong.
    pub(super) logs: Option<PathBuf>,
}

impl LivesReport {
    fn is_held(&self) -> bool {
        self.measures.lateness.p99 < HELD_LATENESS_MS
            && self.measures.rest_s.is_some_and(|rest| rest < HELD_REST_S)
            && self.created_per_s() >= f64::from(self.options.rate.get()) * 0.98
            && self.violations.is_empty()
    }

    fn created_per_s(&self) -> f64 {
        self.created as f64 / self.creating_seconds.max(f64::EPSILON)
    }

    /// Milliseconds of processor time for each life, by kind of process.
    fn cpu_ms_per_life(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let lives = self.created.max(1) as f64;
        self.processor.by_kind.iter().map(move |(kind, ms)| (*kind, round_to_digits(*ms as f64 / lives, 3)))
    }

    pub(super) fn to_json(&self) -> Value {
        let (options, measures) = (&self.options, &self.measures);
        let late = &measures.lateness;
        let cpu: Map<String, Value> = self.cpu_ms_per_life().map(|(kind, ms)| (kind.to_owned(), json!(ms))).collect();
        let mut json = json!({
            "scenario": options.scenario,
            "orders": measures.outcomes.orders,
            "rate": options.rate,
            "workers": options.workers,
            "drivers": self.drivers,
            "held": self.is_held(),
            "created_per_s": round_to_digits(self.created_per_s(), 1),
            "lateness_ms": { "p50": late.p50, "p99": late.p99, "max": late.max, "jobs": late.jobs },
            "rest_s": measures.rest_s.map(|s| round_to_digits(s, 2)),
            "offer_delay_ms": measures.offer_delay_ms,
            "answer_ms": self.answer_times,
            "offers": measures.offers,
            "outcomes": measures.outcomes.by_status,
            "driver_answers": self.driver_answers,
            "repairs": measures.repairs,
            "cpu_ms_per_life": cpu,
            "busiest_process": self.processor.busiest,
            "machine_busy_share": self.processor.machine_busy_share.map(|share| round_to_digits(share, 3)),
            "machine": self.machine,
            "versions": self.versions,
            "peer": self.peer,
            "traces": self.traces,
            "violations": self.violations,
        });
        if let (Some(logs), Value::Object(json)) = (&self.logs, &mut json) {
            json.insert("logs".to_owned(), json!(logs));
        }
        json
    }

    /// Tables for people.
    pub(super) fn to_text(&self) -> String {
        let options = &self.options;
        let mut parts = vec![
            format!(
                "fleet: {} orders at {} per second, {} drivers, {} worker processes\n{}\n{}",
                self.measures.outcomes.orders,
                options.rate,
                self.drivers,
                options.workers,
                self.machine.to_text(),
                self.versions.to_text(),
            ),
            self.figure_table().to_string(),
            counts_table("outcome", "orders", &self.measures.outcomes.by_status),
            counts_table("drivers' answers", "", &self.driver_answers),
        ];
        parts.extend(self.peer.as_ref().map(|peer| format!("the other system: {peer}")));
        parts.extend(self.traces.map(SentTraces::to_text));
        parts.push(self.verdict_text());
        parts.join("\n")
    }

    fn figure_table(&self) -> Table {
        let (measures, late) = (&self.measures, &self.measures.lateness);
        let seconds = |s: Option<f64>| s.map_or("-".to_owned(), |s| format!("{s:.2} s"));
        let ms = |ms: Option<f64>| ms.map_or("-".to_owned(), |ms| format!("{ms:.1}"));
        let delay = &measures.offer_delay_ms;
        let mut table = table_with_header(&["measured", "held means", ""]);
        let mut row = |name: &str, goal: &str, value: String| add_table_row(&mut table, &[name, goal, &value]);
        row("orders created per second", "98 % of the rate", format!("{:.1}", self.created_per_s()));
        row(
            "lateness of jobs p50 / p99 / max",
            "p99 < 100 ms",
            format!("{} / {} / {} ms", late.p50, late.p99, late.max),
        );
        row("the last order ended after its creation", "< 10 s", seconds(measures.rest_s));
        let delays = format!("{} / {} / {} ms", ms(delay.p50), ms(delay.p99), ms(delay.max));
        row("from creation to the first offer p50 / p99 / max", "", delays);
        for (asked, times) in &self.answer_times {
            row(&format!("{asked}: answered after p50 / p99 / max"), "", times.to_text());
        }
        for (kind, cpu) in self.cpu_ms_per_life() {
            row(&format!("processor time per life: {kind}"), "", format!("{cpu:.2} ms"));
        }
        let busy = self.processor.machine_busy_share.map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0));
        row("processors were busy", "", busy);
        row("timers repaired", "", measures.repairs.to_string());
        row("violations", "0", self.violations.len().to_string());
        table
    }

    fn verdict_text(&self) -> String {
        let mut lines = Vec::new();
        if self.violations.is_empty() {
            let held = if self.is_held() { "This rate is held." } else { "This rate is not held." };
            lines.push(format!("{held} At rest; the history is clean: no invariant was violated."));
        } else {
            lines.push(format!("{} violations:", self.violations.len()));
            lines.extend(self.violations.iter().map(|violation| format!("  {violation}")));
        }
        lines.extend(self.logs.as_ref().map(|dir| format!("logs of the processes: {}", dir.display())));
        lines.join("\n")
    }
}
