//! The figures beside the goals of the design, for people or as one JSON object.

use std::{collections::BTreeMap, path::PathBuf};

use comfy_table::Table;
use serde_json::{Value, json};

use super::{
    measure::OrderMeasures,
    options::OrdersOptions,
    scenario::OrdersScenario,
    watch::{CpuPerOrder, WorkerMemory},
};
use crate::bench::{
    collector::SentTraces,
    machine::{MachineInfo, SoftwareVersions},
    spread::round_to_digits,
    tables::{add_table_row, counts_table, table_with_header},
};
use partner_sim::counters::SimulationCounters;

#[derive(Debug)]
pub(super) struct OrdersReport {
    pub(super) options: OrdersOptions,
    pub(super) machine: MachineInfo,
    pub(super) versions: SoftwareVersions,
    /// From the first order to rest, and to the last order's creation.
    pub(super) wall_seconds: f64,
    pub(super) creating_seconds: f64,
    pub(super) created: u64,
    /// What the partner was asked while orders were created.
    pub(super) calls_while_creating: u64,
    pub(super) measures: OrderMeasures,
    pub(super) partner: SimulationCounters,
    pub(super) worker_rss_mb: WorkerMemory,
    pub(super) cpu_per_order: CpuPerOrder,
    /// What was sent to the collector of traces, if there was one.
    pub(super) traces: Option<SentTraces>,
    /// Seconds for which each alert fired, if a Prometheus looked.
    pub(super) alerts_fired: Option<BTreeMap<String, u64>>,
    pub(super) violations: Vec<String>,
    /// Logs of the processes, where they were kept because something is wrong.
    pub(super) logs: Option<PathBuf>,
}

impl OrdersReport {
    /// At rest, no invariant violated, and the partner never asked more often than it allows.
    pub(super) fn is_good(&self) -> bool {
        self.violations.is_empty() && self.partner.rate_limited == 0
    }

    fn order_count(&self) -> u64 {
        self.measures.outcomes.orders
    }

    fn job_id_rate(&self) -> f64 {
        safe_ratio(self.measures.job_ids.orders.unsigned_abs(), self.order_count())
    }

    fn via_callback_rate(&self) -> f64 {
        let ids = &self.measures.job_ids;
        safe_ratio(ids.via_callback.unsigned_abs(), ids.orders.unsigned_abs())
    }

    fn manual_rate(&self) -> f64 {
        safe_ratio(self.measures.manual, self.order_count())
    }

    /// Of the order's time.
    fn p95_time_to_job_id_s(&self) -> Option<f64> {
        self.measures.job_ids.p95_s.map(|wall_s| round_to_digits(wall_s * self.options.speed, 2))
    }

    fn polls_per_order(&self) -> f64 {
        safe_ratio(self.partner.polls, self.order_count())
    }

    /// Of the questions for job ids that asking every 2 s takes, the part that was not asked.
    fn calls_saved(&self) -> f64 {
        let questions = &self.measures.questions;
        1.0 - safe_ratio(questions.asked.unsigned_abs(), questions.naive.unsigned_abs())
    }

    fn created_per_s(&self) -> f64 {
        per_s(self.created, self.creating_seconds)
    }

    fn calls_per_s(&self) -> f64 {
        per_s(self.calls_while_creating, self.creating_seconds)
    }

    pub(super) fn to_json(&self) -> Value {
        let (measures, options) = (&self.measures, &self.options);
        let late = &measures.lateness;
        let delay = |s: Option<f64>| s.map(|s| round_to_digits(s, 3));
        let mut json = json!({
            "scenario": options.scenario,
            "orders": self.order_count(),
            "rate": options.rate,
            "speed": options.speed,
            "workers": options.workers,
            "seed": options.seed,
            "partner_limit_per_s": options.partner_limit(),
            "wall_seconds": round_to_digits(self.wall_seconds, 1),
            "created_per_s": round_to_digits(self.created_per_s(), 1),
            "job_id_rate": round_to_digits(self.job_id_rate(), 4),
            "via_callback_rate": round_to_digits(self.via_callback_rate(), 4),
            "manual_rate": round_to_digits(self.manual_rate(), 4),
            "p50_time_to_job_id_s": measures.job_ids.p50_s.map(|wall_s| round_to_digits(wall_s * options.speed, 2)),
            "p95_time_to_job_id_s": self.p95_time_to_job_id_s(),
            "alert_delay_s": {
                "p50": delay(measures.alert_delay.p50),
                "p99": delay(measures.alert_delay.p99),
                "max": delay(measures.alert_delay.max),
            },
            "polls_per_order": round_to_digits(self.polls_per_order(), 2),
            "partner_calls_per_s": round_to_digits(self.calls_per_s(), 1),
            "partner_calls_max_in_a_second": self.partner.max_in_a_second,
            "partner_calls_saved": round_to_digits(self.calls_saved(), 4),
            "limit_exceeded": self.partner.rate_limited,
            "outcomes": measures.outcomes.by_status,
            "held": measures.outcomes.held,
            "bookings": measures.bookings,
            "alerts": measures.alerts,
            "lateness_ms": { "p50": late.p50, "p99": late.p99, "max": late.max, "jobs": late.jobs },
            "repairs": measures.repairs,
            "worker_rss_mb": self.worker_rss_mb,
            "cpu_ms_per_order": self.cpu_per_order,
            "partner": self.partner,
            "traces": self.traces,
            "alerts_fired_s": self.alerts_fired,
            "machine": self.machine,
            "versions": self.versions,
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
                "{}: {} orders at {} per second, speed {}, {} worker processes, seed {}: {:.0} s\n{}\n{}",
                scenario_name(options.scenario),
                self.order_count(),
                options.rate,
                options.speed,
                options.workers,
                options.seed,
                self.wall_seconds,
                self.machine.to_text(),
                self.versions.to_text(),
            ),
            self.figure_table().to_string(),
            counts_table("outcome", "orders", &self.measures.outcomes.by_status),
        ];
        if !self.measures.alerts.is_empty() {
            parts.push(counts_table("alerts, by channel", "", &self.measures.alerts));
        }
        parts.extend(self.traces.map(SentTraces::to_text));
        parts.extend(self.alerts_fired.as_ref().map(|fired| match fired.len() {
            0 => "Prometheus: no alert fired.".to_owned(),
            _ => counts_table("alerts that fired", "s", fired),
        }));
        parts.push(self.verdict_text());
        parts.join("\n")
    }

    fn figure_table(&self) -> Table {
        let (measures, seconds) = (&self.measures, |s: Option<f64>| s.map_or("-".to_owned(), |s| format!("{s:.2} s")));
        let (late, memory, cpu) = (&measures.lateness, &self.worker_rss_mb, &self.cpu_per_order);
        // The design's goals are for a partner that works as it should; of the others it wants the job ids.
        let goal = |goal: &'static str| if self.options.scenario == OrdersScenario::Normal { goal } else { "" };
        let mut table = table_with_header(&["measured", "goal", ""]);
        for (name, goal, value) in [
            ("orders created per second", "", format!("{:.1}", self.created_per_s())),
            ("orders with a job id", "99.9 %", format_percent(self.job_id_rate())),
            ("- by callback", goal("> 90 %"), format_percent(self.via_callback_rate())),
            ("- p95 since creation, of the order's time", goal("< 10 s"), seconds(self.p95_time_to_job_id_s())),
            ("orders that needed a person", goal("< 0.1 %"), format_percent(self.manual_rate())),
            ("alerts: p99 from cause to arrival", "", seconds(measures.alert_delay.p99)),
            ("questions per order", "", format!("{:.2}", self.polls_per_order())),
            ("questions for job ids, less than every 2 s", goal("30 %"), format_percent(self.calls_saved())),
            ("partner: calls per second", "", format!("{:.1}", self.calls_per_s())),
            ("partner: most in a second / allowed", "", self.most_calls()),
            ("partner: calls above its limit", "0", self.partner.rate_limited.to_string()),
            ("lateness of jobs p50 / p99 / max", "", format!("{} / {} / {} ms", late.p50, late.p99, late.max)),
            ("jobs run", "", late.jobs.to_string()),
            ("timers repaired", "", measures.repairs.to_string()),
            ("memory of a worker: first / last / max", "", {
                format!("{:.1} / {:.1} / {:.1} MiB", memory.first, memory.last, memory.max)
            }),
            ("processor time per order: API / workers", "", format!("{:.1} / {:.1} ms", cpu.api, cpu.workers)),
            ("- Postgres / Redis / partner and producer", "", {
                format!("{:.1} / {:.1} / {:.1} ms", cpu.postgres, cpu.redis, cpu.bench)
            }),
            ("held for a person", "", measures.outcomes.held.to_string()),
            ("violations", "0", self.violations.len().to_string()),
        ] {
            add_table_row(&mut table, &[name, goal, &value]);
        }
        table
    }

    fn most_calls(&self) -> String {
        format!("{} / {}", self.partner.max_in_a_second, self.options.partner_limit())
    }

    fn verdict_text(&self) -> String {
        if self.is_good() {
            return "At rest; the history is clean: no invariant was violated.".to_owned();
        }
        let mut lines = Vec::new();
        if self.partner.rate_limited > 0 {
            lines.push(format!("The partner refused {} calls above its limit.", self.partner.rate_limited));
        }
        if !self.violations.is_empty() {
            lines.push(format!("{} violations:", self.violations.len()));
            lines.extend(self.violations.iter().map(|violation| format!("  {violation}")));
        }
        lines.extend(self.logs.as_ref().map(|dir| format!("logs of the processes: {}", dir.display())));
        lines.join("\n")
    }
}

fn scenario_name(scenario: OrdersScenario) -> String {
    use clap::ValueEnum;
    scenario.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Zero of nothing.
fn safe_ratio(part: u64, whole: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts of one run")]
    let (part, whole) = (part as f64, whole as f64);
    if whole == 0.0 { 0.0 } else { part / whole }
}

fn per_s(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { safe_ratio(count, 1) / seconds } else { 0.0 }
}

fn format_percent(part: f64) -> String {
    format!("{:.2} %", part * 100.0)
}
