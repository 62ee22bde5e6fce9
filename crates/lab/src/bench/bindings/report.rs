//! What was measured, for people or as one JSON object.

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::{
    due_times::CycleWaits,
    measure::{CallMeasures, CycleMeasures},
    options::BindingsOptions,
    provider::JudgeVerdict,
    stops::MeasuredStops,
};
use crate::bench::{
    machine::{MachineInfo, SoftwareVersions},
    processor::ProcessorUse,
    spread::{SamplePercentiles, round_to_digits, us_to_ms},
    tables::{add_table_row, table_with_header},
};

#[derive(Debug)]
pub(super) struct BindingsReport {
    pub(super) options: BindingsOptions,
    pub(super) machine: MachineInfo,
    pub(super) versions: SoftwareVersions,
    pub(super) measures: CycleMeasures,
    pub(super) calls: CallMeasures,
    pub(super) waits: CycleWaits,
    pub(super) stops: MeasuredStops,
    pub(super) verdict: JudgeVerdict,
    pub(super) processor: ProcessorUse,
    /// Workers that were killed.
    pub(super) kills: u64,
    pub(super) violations: Vec<String>,
    /// Logs of the processes, where they were kept because something is wrong.
    pub(super) logs: Option<PathBuf>,
}

impl BindingsReport {
    pub(super) fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }

    fn bound_per_s(&self) -> f64 {
        self.options.bound_per_s(self.calls.claim_ms / 1000.0)
    }

    fn share(&self) -> f64 {
        self.measures.cycles_per_s() / self.bound_per_s().max(f64::EPSILON)
    }

    fn stop_percentiles(&self) -> SamplePercentiles {
        SamplePercentiles::from_samples(self.stops.latencies_us.clone())
    }

    /// Milliseconds of processor time for each cycle that ended, by kind of process.
    fn cpu_ms_per_cycle(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let cycles = self.measures.cycles.max(1) as f64;
        self.processor.by_kind.iter().map(move |(kind, ms)| (*kind, round_to_digits(*ms as f64 / cycles, 3)))
    }

    pub(super) fn to_json(&self) -> Value {
        let (options, measures, verdict) = (&self.options, &self.measures, &self.verdict);
        let cpu: Map<String, Value> = self.cpu_ms_per_cycle().map(|(kind, ms)| (kind.to_owned(), json!(ms))).collect();
        let mut json = json!({
            "bindings": options.bindings,
            "servers": options.servers,
            "workers": options.workers,
            "calls": options.calls,
            "calls_per_server": options.calls_per_server,
            "interval_ms": options.interval_ms(),
            "interval_from": options.interval_from(),
            "seconds": round_to_digits(measures.seconds, 1),
            "cycles": measures.cycles,
            "failed": measures.failed,
            "cycles_per_s": round_to_digits(measures.cycles_per_s(), 1),
            "bound_per_s": round_to_digits(self.bound_per_s(), 1),
            "demand_per_s": round_to_digits(options.demand_per_s(), 1),
            "share": round_to_digits(self.share(), 4),
            "claim_ms": round_to_digits(self.calls.claim_ms, 2),
            "over_admissions": verdict.over_admissions,
            "overlaps": verdict.overlaps,
            "late_refused": verdict.late_refused,
            "gaps": verdict.gaps,
            "never_arrived": measures.never_arrived,
            "longest_wait_over_mean": self.waits.longest_over_mean().map(|ratio| round_to_digits(ratio, 2)),
            "mean_wait_ms": round_to_digits(self.waits.mean_us / 1000.0, 2),
            "waits": self.waits.cycles,
            "lateness_ms": self.waits.percentiles.to_json_ms(),
            "stop_latency_ms": self.stop_percentiles().to_json_ms(),
            "stops": self.stops.latencies_us.len(),
            "kills": self.kills,
            "cpu_ms_per_cycle": cpu,
            "busiest_process": self.processor.busiest,
            "machine_busy_share": self.processor.machine_busy_share.map(|share| round_to_digits(share, 3)),
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
        let (options, interval) = (&self.options, self.options.interval_ms());
        [
            format!(
                "{} bindings on {} servers, {} to {} ms from cycle to cycle, {} worker processes: {:.0} s measured\n{}\n{}",
                options.bindings,
                options.servers,
                interval.least,
                interval.most,
                options.workers,
                self.measures.seconds,
                self.machine.to_text(),
                self.versions.to_text(),
            ),
            self.figure_table(),
            verdict_text(&self.violations, self.logs.as_ref()),
        ]
        .join("\n")
    }

    fn figure_table(&self) -> String {
        let (measures, verdict, waits, stops) = (&self.measures, &self.verdict, &self.waits, self.stop_percentiles());
        let ratio = waits.longest_over_mean().map_or("-".to_owned(), |ratio| format!("{ratio:.1}"));
        let mut rows = vec![
            ("cycles per second", format!("{:.1}", measures.cycles_per_s())),
            ("- that are possible", format!("{:.1}", self.bound_per_s())),
            ("- share of it", format!("{:.1} %", self.share() * 100.0)),
            ("a durable claim, on average", format!("{:.2} ms", self.calls.claim_ms)),
            ("calls above the limits", verdict.over_admissions.to_string()),
            ("calls of a binding that overlap", verdict.overlaps.to_string()),
            ("calls refused as late", verdict.late_refused.to_string()),
            ("cycles passed over at the provider / starts that never arrived", {
                format!("{} / {}", verdict.gaps, measures.never_arrived)
            }),
            ("due until claimed: p50 / p99 / max", format_percentiles(waits.percentiles)),
            ("- longest over mean", ratio),
            ("stop until STOPPED: p50 / p99 / max", format_percentiles(stops)),
            ("workers killed", self.kills.to_string()),
        ];
        let cpu = self.cpu_ms_per_cycle().map(|(kind, ms)| (kind, format!("{ms:.2} ms")));
        let busiest = self.processor.busiest.as_ref().map(|busiest| (busiest.kind, busiest.processors));
        let mut table = table_with_header(&["measured", ""]);
        rows.push(("busiest process, processors it used", {
            busiest.map_or("-".to_owned(), |(kind, processors)| format!("{kind} {processors:.2}"))
        }));
        rows.push(("processors that were busy", {
            self.processor.machine_busy_share.map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0))
        }));
        for (name, value) in rows {
            add_table_row(&mut table, &[name, &value]);
        }
        for (kind, value) in cpu {
            add_table_row(&mut table, &[&format!("processor time per cycle: {kind}"), &value]);
        }
        table.to_string()
    }
}

pub(super) fn format_percentiles(of: SamplePercentiles) -> String {
    format!("{:.1} / {:.1} / {:.1} ms", us_to_ms(of.p50), us_to_ms(of.p99), us_to_ms(of.max))
}

/// Every violation, and where the logs are.
pub(super) fn verdict_text(violations: &[String], logs: Option<&PathBuf>) -> String {
    if violations.is_empty() {
        return "The provider's judge and the history have found nothing.".to_owned();
    }
    let mut lines = vec![format!("{} violations:", violations.len())];
    lines.extend(violations.iter().map(|violation| format!("  {violation}")));
    lines.extend(logs.map(|dir| format!("logs of the processes: {}", dir.display())));
    lines.join("\n")
}
