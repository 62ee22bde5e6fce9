//! The report for programs: one JSON object.

use serde_json::{Map, Value, json};

use super::{
    super::{memory::QueueMemory, options::RoundSizes, spread::RoundSpread},
    PeerRounds, QueueReport,
    figures::{FigureGoal, ReportFigure, round_figure},
};

impl QueueReport {
    pub(in crate::bench) fn to_json(&self) -> Value {
        let figures = self.list_figures();
        let goals = figures.iter().filter(|figure| figure.goal != FigureGoal::None).map(|figure| {
            let goal = json!({ "goal": figure.goal.to_text(), "met": figure.goal.is_met(figure.spread.median) });
            (figure.name.clone(), goal)
        });
        let rounds = figures.iter().map(|ReportFigure { name, spread, .. }| {
            let RoundSpread { min, median, max } = *spread;
            (name.clone(), json!({ "min": figure_json(min), "median": figure_json(median), "max": figure_json(max) }))
        });
        let median = |spread: RoundSpread| figure_json(spread.median);
        let worst = |spread: RoundSpread| figure_json(spread.max);
        let memory = |bytes: fn(&QueueMemory) -> f64| self.memory.as_ref().map(|memory| figure_json(bytes(memory)));
        let of_peers = |figure: &dyn Fn(&PeerRounds) -> Value| -> Map<String, Value> {
            self.peers.iter().map(|(name, peer)| (name.clone(), figure(peer))).collect()
        };
        let mut json = json!({
            "machine": self.machine,
            "versions": self.versions,
            "quick": self.sizes == RoundSizes::QUICK,
            "enqueue_per_s": median(self.of_throughput(|round| round.enqueue_per_s)),
            "process_per_s": median(self.of_throughput(|round| round.process_per_s)),
            "through_per_s": median(self.of_throughput(|round| round.through_per_s)),
            "metered_per_s": median(self.of_throughput(|round| round.metered_per_s)),
            "process_cpu_us_per_job": {
                "worker": median(self.of_throughput(|round| round.worker_cpu_us.unwrap_or_default())),
                "redis": median(self.of_throughput(|round| round.redis_cpu_us)),
            },
            "lateness_ms": {
                "p50": median(self.late_ms(|late| late.p50)),
                "p99": median(self.late_ms(|late| late.p99)),
                "max": worst(self.late_ms(|late| late.max)),
                "early": self.count_early(),
                "jobs": self.lateness.iter().map(|round| round.observed.jobs).sum::<u32>(),
                "pending": self.sizes.pending,
                "due_per_s": median(RoundSpread::over_rounds(self.lateness.iter().map(|round| round.due_per_s))),
            },
            "pickup_ms": {
                "p50": median(self.pickup_ms(|pickup| pickup.p50)),
                "p99": median(self.pickup_ms(|pickup| pickup.p99)),
                "max": worst(self.pickup_ms(|pickup| pickup.max)),
            },
            "herd": {
                "jobs": self.sizes.herd_jobs,
                "drain_per_s": median(self.drain_per_s()),
                "lost": self.herd.iter().map(|round| round.lost).sum::<u32>(),
                "doubled": self.herd.iter().map(|round| round.doubled).sum::<u32>(),
            },
            "bytes_per_timer": memory(|memory| memory.bytes_per_timer),
            "bytes_per_job": memory(|memory| memory.bytes_per_job),
            "idle_commands_per_s": median(RoundSpread::over_rounds(self.idle.iter().copied())),
            "rounds": rounds.collect::<Map<_, _>>(),
            "goals": goals.collect::<Map<_, _>>(),
        });
        if !self.peers.is_empty() {
            json["peers"] =
                of_peers(&|peer| median(RoundSpread::over_rounds(peer.process_per_s.iter().copied()))).into();
            json["ratios"] = of_peers(&|peer| median(self.process_ratio(peer))).into();
            json["through_ratios"] = of_peers(&|peer| median(self.through_ratio(peer))).into();
            json["with_leases_ratios"] = of_peers(&|peer| median(self.with_leases_ratio(peer))).into();
            json["peer_details"] = of_peers(&|peer| {
                let enqueue_per_s = median(RoundSpread::over_rounds(peer.enqueue_per_s.iter().copied()));
                let through_per_s = median(RoundSpread::over_rounds(peer.through_per_s.iter().copied()));
                let with_leases_per_s = median(RoundSpread::over_rounds(peer.with_leases_per_s.iter().copied()));
                let cpu_us = median(RoundSpread::over_rounds(peer.cpu_us.iter().copied()));
                json!({ "version": peer.version, "settings": peer.settings, "enqueue_per_s": enqueue_per_s,
                        "through_per_s": through_per_s, "with_leases_per_s": with_leases_per_s, "process_cpu_us_per_job": cpu_us,
                        "lateness_ms": peer.lateness })
            })
            .into();
        }
        json
    }
}

/// Whole numbers without a fraction.
#[expect(clippy::cast_possible_truncation, reason = "figures of a benchmark are far below 2^63")]
fn figure_json(figure: f64) -> Value {
    let figure = round_figure(figure);
    if figure.fract() == 0.0 { Value::from(figure as i64) } else { Value::from(figure) }
}
