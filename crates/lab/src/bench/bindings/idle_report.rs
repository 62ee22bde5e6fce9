//! What was measured of idle bindings, for people or as one JSON object.

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::{
    idle::IdleMeasures,
    options::BindingsOptions,
    provider::JudgeVerdict,
    report::{format_percentiles, verdict_text},
};
use crate::bench::{
    machine::{MachineInfo, SoftwareVersions},
    spread::round_to_digits,
    tables::{add_table_row, table_with_header},
};

#[derive(Debug)]
pub(super) struct IdleReport {
    pub(super) options: BindingsOptions,
    /// Bindings.
    pub(super) count: u32,
    pub(super) machine: MachineInfo,
    pub(super) versions: SoftwareVersions,
    pub(super) measures: IdleMeasures,
    pub(super) verdict: JudgeVerdict,
    pub(super) violations: Vec<String>,
    /// Logs of the processes, where they were kept because something is wrong.
    pub(super) logs: Option<PathBuf>,
}

impl IdleReport {
    pub(super) fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }

    fn redis_bytes_per_binding(&self) -> f64 {
        self.measures.redis_bytes as f64 / f64::from(self.count)
    }

    fn postgres_bytes_per_binding(&self) -> f64 {
        self.measures.postgres_bytes as f64 / f64::from(self.count)
    }

    /// Milliseconds of processor time in each idle second, by kind of process.
    fn cpu_ms_per_s(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let processor = &self.measures.processor;
        let seconds = processor.elapsed.as_secs_f64().max(f64::EPSILON);
        processor.by_kind.iter().map(move |(kind, ms)| (*kind, round_to_digits(*ms as f64 / seconds, 2)))
    }

    pub(super) fn to_json(&self) -> Value {
        let (options, measures, verdict) = (&self.options, &self.measures, &self.verdict);
        let cpu: Map<String, Value> = self.cpu_ms_per_s().map(|(kind, ms)| (kind.to_owned(), json!(ms))).collect();
        let mut json = json!({
            "idle": self.count,
            "servers": options.servers,
            "workers": options.workers,
            "seconds": round_to_digits(measures.processor.elapsed.as_secs_f64(), 1),
            "redis_bytes_per_binding": round_to_digits(self.redis_bytes_per_binding(), 1),
            "postgres_bytes_per_binding": round_to_digits(self.postgres_bytes_per_binding(), 1),
            "cpu_ms_per_s": cpu,
            "busiest_process": measures.processor.busiest,
            "machine_busy_share": measures.processor.machine_busy_share.map(|share| round_to_digits(share, 3)),
            "due": measures.due,
            "waits": measures.waits.cycles,
            "lateness_ms": measures.waits.percentiles.to_json_ms(),
            "over_admissions": verdict.over_admissions,
            "overlaps": verdict.overlaps,
            "late_refused": verdict.late_refused,
            "gaps": verdict.gaps,
            "judge": verdict,
            "machine": self.machine,
            "versions": self.versions,
            "violations": self.violations,
        });
        if let (Some(logs), Value::Object(json)) = (&self.logs, &mut json) {
            json.insert("logs".to_owned(), json!(logs));
        }
        json
    }

    /// A table for people.
    pub(super) fn to_text(&self) -> String {
        let measures = &self.measures;
        let mut table = table_with_header(&["measured", ""]);
        for (name, value) in [
            ("bytes per binding in Redis", format!("{:.0}", self.redis_bytes_per_binding())),
            ("bytes per binding in Postgres", format!("{:.0}", self.postgres_bytes_per_binding())),
            ("bindings that fell due", measures.due.to_string()),
            ("due until claimed: p50 / p99 / max", format_percentiles(measures.waits.percentiles)),
        ] {
            add_table_row(&mut table, &[name, &value]);
        }
        for (kind, ms) in self.cpu_ms_per_s() {
            add_table_row(&mut table, &[&format!("processor time per idle second: {kind}"), &format!("{ms:.1} ms")]);
        }
        [
            format!(
                "{} idle bindings on {} servers, {} worker processes: {:.0} s measured\n{}\n{}",
                self.count,
                self.options.servers,
                self.options.workers,
                measures.processor.elapsed.as_secs_f64(),
                self.machine.to_text(),
                self.versions.to_text(),
            ),
            table.to_string(),
            verdict_text(&self.violations, self.logs.as_ref()),
        ]
        .join("\n")
    }
}
