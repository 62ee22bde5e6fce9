//! The figures beside their goals: a table for people, one JSON object for programs.

use std::collections::BTreeMap;

use comfy_table::{Cell, CellAlignment, Table, presets::UTF8_BORDERS_ONLY};
use serde_json::{Map, Value, json};

use super::{
    herd::HerdRound,
    lateness::LatenessRound,
    machine::{MachineInfo, SoftwareVersions},
    memory::QueueMemory,
    options::RoundSizes,
    peer,
    spread::{RoundSpread, SamplePercentiles},
    throughput::ThroughputRound,
};

/// All that was measured, round by round.
#[derive(Debug)]
pub(super) struct QueueReport {
    machine: MachineInfo,
    versions: SoftwareVersions,
    sizes: RoundSizes,
    pub(super) throughput: Vec<ThroughputRound>,
    pub(super) lateness: Vec<LatenessRound>,
    pub(super) pickup: Vec<SamplePercentiles>,
    pub(super) herd: Vec<HerdRound>,
    pub(super) memory: Option<QueueMemory>,
    pub(super) idle: Vec<f64>,
    /// By name.
    pub(super) peers: BTreeMap<String, PeerRounds>,
}

/// Another queue, round by round.
#[derive(Debug)]
pub(super) struct PeerRounds {
    /// Among the programs given.
    pub(super) position: usize,
    pub(super) version: String,
    pub(super) settings: String,
    pub(super) process_per_s: Vec<f64>,
    pub(super) enqueue_per_s: Vec<f64>,
    pub(super) through_per_s: Vec<f64>,
    /// Empty where it has no leases, or no choice.
    pub(super) with_leases_per_s: Vec<f64>,
    pub(super) cpu_us: Vec<f64>,
    pub(super) lateness: Option<peer::PeerLateness>,
}

/// What a figure is to be.
#[derive(Debug, Clone, Copy, PartialEq)]
enum FigureGoal {
    AtLeast(f64),
    AtMost(f64),
    /// Told for the record.
    None,
}

impl FigureGoal {
    fn is_met(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(least) => figure >= least,
            Self::AtMost(most) => figure <= most,
            Self::None => true,
        }
    }

    fn to_text(self) -> String {
        match self {
            Self::AtLeast(least) => format!(">= {}", format_figure(least)),
            Self::AtMost(most) => format!("<= {}", format_figure(most)),
            Self::None => String::new(),
        }
    }
}

/// One line of the table, and one entry under `rounds` in the JSON.
struct ReportFigure {
    name: String,
    text: String,
    goal: FigureGoal,
    spread: RoundSpread,
}

impl QueueReport {
    pub(super) fn new(machine: MachineInfo, versions: SoftwareVersions, sizes: RoundSizes) -> Self {
        Self {
            machine,
            versions,
            sizes,
            throughput: Vec::new(),
            lateness: Vec::new(),
            pickup: Vec::new(),
            herd: Vec::new(),
            memory: None,
            idle: Vec::new(),
            peers: BTreeMap::new(),
        }
    }

    /// Jobs per second in the worst round so far.
    pub(super) fn slowest_enqueue(&self) -> f64 {
        self.of_throughput(|round| round.enqueue_per_s).min
    }

    /// No job was lost, run twice or early. Such a run may be a matter of a frozen machine, but it must be looked at.
    pub(super) fn keeps_promises(&self) -> bool {
        let throughput = self.throughput.iter().all(|round| round.lost == 0 && round.doubled == 0);
        let herd = self.herd.iter().all(|round| round.lost == 0 && round.doubled == 0);
        throughput && herd && self.count_early() == 0
    }

    fn count_early(&self) -> u32 {
        self.lateness.iter().map(|round| round.observed.early).sum()
    }

    fn of_throughput(&self, figure: fn(&ThroughputRound) -> f64) -> RoundSpread {
        RoundSpread::over_rounds(self.throughput.iter().map(figure))
    }

    fn late_ms(&self, figure: fn(&SamplePercentiles) -> i64) -> RoundSpread {
        RoundSpread::over_rounds(self.lateness.iter().map(|round| us_to_ms(figure(&round.observed.lateness_us))))
    }

    fn pickup_ms(&self, figure: fn(&SamplePercentiles) -> i64) -> RoundSpread {
        RoundSpread::over_rounds(self.pickup.iter().map(|round| us_to_ms(figure(round))))
    }

    fn drain_per_s(&self) -> RoundSpread {
        RoundSpread::over_rounds(self.herd.iter().map(|round| round.drain_per_s.unwrap_or_default()))
    }

    /// Ours over theirs, each round by itself: both then met the same machine.
    fn throughput_ratio(&self, ours: fn(&ThroughputRound) -> f64, theirs: &[f64]) -> RoundSpread {
        RoundSpread::over_rounds(
            self.throughput.iter().map(ours).zip(theirs).map(|(ours, theirs)| ours / theirs.max(1.0)),
        )
    }

    fn process_ratio(&self, peer: &PeerRounds) -> RoundSpread {
        self.throughput_ratio(|round| round.process_per_s, &peer.process_per_s)
    }

    fn through_ratio(&self, peer: &PeerRounds) -> RoundSpread {
        self.throughput_ratio(|round| round.through_per_s, &peer.through_per_s)
    }

    fn with_leases_ratio(&self, peer: &PeerRounds) -> RoundSpread {
        self.throughput_ratio(|round| round.through_per_s, &peer.with_leases_per_s)
    }

    fn list_figures(&self) -> Vec<ReportFigure> {
        let figure = |name: &str, text: &str, goal: FigureGoal, spread: RoundSpread| ReportFigure {
            name: name.to_owned(),
            text: text.to_owned(),
            goal,
            spread,
        };
        let memory = |bytes: fn(&QueueMemory) -> f64| RoundSpread::over_rounds(self.memory.iter().map(bytes));
        let mut figures = vec![
            figure(
                "process_per_s",
                "process: take, run, settle; jobs/s",
                FigureGoal::AtLeast(130_000.0),
                self.of_throughput(|round| round.process_per_s),
            ),
            figure(
                "process_cpu_us_worker",
                "process: processor time of the worker; us/job",
                FigureGoal::None,
                self.of_throughput(|round| round.worker_cpu_us.unwrap_or_default()),
            ),
            figure(
                "process_cpu_us_redis",
                "process: processor time of Redis; us/job",
                FigureGoal::None,
                self.of_throughput(|round| round.redis_cpu_us),
            ),
            figure(
                "metered_per_s",
                "process, metrics recorded; jobs/s",
                FigureGoal::None,
                self.of_throughput(|round| round.metered_per_s),
            ),
            figure(
                "metered_cpu_us_worker",
                "process, metrics recorded: processor time of the worker; us/job",
                FigureGoal::None,
                self.of_throughput(|round| round.metered_cpu_us.unwrap_or_default()),
            ),
            figure(
                "enqueue_per_s",
                "enqueue in batches of 500; jobs/s",
                FigureGoal::AtLeast(120_000.0),
                self.of_throughput(|round| round.enqueue_per_s),
            ),
            figure(
                "through_per_s",
                "both at once; jobs/s",
                FigureGoal::None,
                self.of_throughput(|round| round.through_per_s),
            ),
            figure("lateness_p50_ms", "lateness p50; ms", FigureGoal::AtMost(2.0), self.late_ms(|late| late.p50)),
            figure("lateness_p99_ms", "lateness p99; ms", FigureGoal::AtMost(5.0), self.late_ms(|late| late.p99)),
            figure("lateness_max_ms", "lateness max; ms", FigureGoal::None, self.late_ms(|late| late.max)),
            figure(
                "early",
                "jobs run early",
                FigureGoal::AtMost(0.0),
                RoundSpread::over_rounds(self.lateness.iter().map(|round| f64::from(round.observed.early))),
            ),
            figure(
                "pickup_p50_ms",
                "pickup by an idle worker p50; ms",
                FigureGoal::AtMost(1.0),
                self.pickup_ms(|p| p.p50),
            ),
            figure(
                "pickup_p99_ms",
                "pickup by an idle worker p99; ms",
                FigureGoal::AtMost(5.0),
                self.pickup_ms(|p| p.p99),
            ),
            figure("herd_drain_per_s", "herd: drained; jobs/s", FigureGoal::None, self.drain_per_s()),
            figure(
                "herd_lost",
                "herd: lost",
                FigureGoal::AtMost(0.0),
                RoundSpread::over_rounds(self.herd.iter().map(|round| f64::from(round.lost))),
            ),
            figure(
                "herd_doubled",
                "herd: run twice",
                FigureGoal::AtMost(0.0),
                RoundSpread::over_rounds(self.herd.iter().map(|round| f64::from(round.doubled))),
            ),
            figure(
                "bytes_per_timer",
                "bytes per order timer",
                FigureGoal::AtMost(160.0),
                memory(|m| m.bytes_per_timer),
            ),
            figure(
                "bytes_per_job",
                "bytes per job with payload",
                FigureGoal::AtMost(350.0),
                memory(|m| m.bytes_per_job),
            ),
            figure(
                "idle_commands_per_s",
                "8 idle workers: commands/s",
                FigureGoal::AtMost(50.0),
                RoundSpread::over_rounds(self.idle.iter().copied()),
            ),
        ];
        for (name, peer) in &self.peers {
            figures.push(figure(
                &format!("{name} process_per_s"),
                &format!("{name} {}: process; jobs/s", peer.version),
                FigureGoal::None,
                RoundSpread::over_rounds(peer.process_per_s.iter().copied()),
            ));
            figures.push(figure(
                &format!("{name} process_cpu_us"),
                &format!("{name}: processor time with Redis; us/job"),
                FigureGoal::None,
                RoundSpread::over_rounds(peer.cpu_us.iter().copied()),
            ));
            figures.push(figure(
                &format!("{name} ratio"),
                &format!("process, times {name}"),
                FigureGoal::AtLeast(4.0),
                self.process_ratio(peer),
            ));
            figures.push(figure(
                &format!("{name} through_per_s"),
                &format!("{name}: both at once; jobs/s"),
                FigureGoal::None,
                RoundSpread::over_rounds(peer.through_per_s.iter().copied()),
            ));
            figures.push(figure(
                &format!("{name} through_ratio"),
                &format!("both at once, times {name}"),
                FigureGoal::None,
                self.through_ratio(peer),
            ));
            if !peer.with_leases_per_s.is_empty() {
                figures.push(figure(
                    &format!("{name} with_leases_per_s"),
                    &format!("{name} with leases: both at once; jobs/s"),
                    FigureGoal::None,
                    RoundSpread::over_rounds(peer.with_leases_per_s.iter().copied()),
                ));
                figures.push(figure(
                    &format!("{name} with_leases_ratio"),
                    &format!("both at once, times {name} with leases"),
                    FigureGoal::None,
                    self.with_leases_ratio(peer),
                ));
            }
        }
        figures
    }

    /// The table, with what it comes from above it.
    pub(super) fn to_text(&self) -> String {
        let RoundSizes { throughput_jobs, pending, due_per_s, herd_jobs, .. } = self.sizes;
        let mut table = Table::new();
        table.load_style(UTF8_BORDERS_ONLY);
        let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        table.set_header(["figure", "goal", "median", "min", "max", ""].map(|name| match name {
            "figure" => Cell::new(name),
            name => right(name.to_owned()),
        }));
        for ReportFigure { text, goal, spread, .. } in self.list_figures() {
            let verdict = if goal.is_met(spread.median) { "" } else { "missed" };
            table.add_row([
                Cell::new(text),
                right(goal.to_text()),
                right(format_figure(spread.median)),
                right(format_figure(spread.min)),
                right(format_figure(spread.max)),
                Cell::new(verdict),
            ]);
        }
        let mut lines = vec![
            self.machine.to_text(),
            self.versions.to_text(),
            format!(
                "{} rounds of: {throughput_jobs} jobs; {pending} timers pending and {due_per_s} due per second; a herd of \
                 {herd_jobs}",
                self.throughput.len()
            ),
            table.to_string(),
        ];
        for (name, peer) in &self.peers {
            lines.push(format!("{name} {}: {}", peer.version, peer.settings));
            lines.extend(peer.lateness.as_ref().map(|late| {
                format!(
                    "{name} lateness with {} pending and {} due per second: p50 {} ms, p99 {} ms, max {} ms",
                    late.pending,
                    late.due_per_s,
                    format_figure(late.p50),
                    format_figure(late.p99),
                    format_figure(late.max)
                )
            }));
        }
        if !self.keeps_promises() {
            lines.push("A promise is broken: jobs were lost, run twice or run early.".to_owned());
        }
        lines.join("\n")
    }

    pub(super) fn to_json(&self) -> Value {
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

#[expect(clippy::cast_precision_loss, reason = "microseconds of less than 285 years")]
fn us_to_ms(us: i64) -> f64 {
    us as f64 / 1000.0
}

/// With no more digits than mean something.
fn round_figure(figure: f64) -> f64 {
    if figure.abs() >= 100.0 { figure.round() } else { (figure * 100.0).round() / 100.0 }
}

fn format_figure(figure: f64) -> String {
    round_figure(figure).to_string()
}

/// Whole numbers without a fraction.
#[expect(clippy::cast_possible_truncation, reason = "figures of a benchmark are far below 2^63")]
fn figure_json(figure: f64) -> Value {
    let figure = round_figure(figure);
    if figure.fract() == 0.0 { Value::from(figure as i64) } else { Value::from(figure) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::runs::ObservedRuns;

    fn late(p50: i64, early: u32) -> LatenessRound {
        let lateness_us = SamplePercentiles { p50, p99: 4_000, max: 9_876 };
        let observed = ObservedRuns {
            jobs: 50_000,
            lost: 0,
            doubled: 0,
            early,
            lateness_us,
            last_due_ms: 0,
            began_us: 0,
            cpu_ms: None,
            settled_us: Some(1),
        };
        LatenessRound { observed, due_per_s: 4_999.6 }
    }

    fn report() -> QueueReport {
        let machine = MachineInfo { cores: 2, memory_gib: Some(24), kernel: Some("Linux 6".into()), load: Some(0.25) };
        let versions =
            SoftwareVersions { dispatchq: "0.1.0", redis: "7.0.15".into(), rustc: "1.95.0", optimized: true };
        let mut report = QueueReport::new(machine, versions, RoundSizes::FULL);
        for process_per_s in [100_000.4, 140_000.0, 120_000.0] {
            report.throughput.push(ThroughputRound {
                enqueue_per_s: 125_000.0,
                process_per_s,
                through_per_s: 60_000.0,
                lost: 0,
                doubled: 0,
                worker_cpu_us: Some(7.5),
                redis_cpu_us: 4.0,
                metered_per_s: 110_000.0,
                metered_cpu_us: Some(8.0),
            });
        }
        report.lateness = vec![late(1_204, 0), late(1_300, 0), late(1_100, 0)];
        report.pickup = vec![SamplePercentiles { p50: 450, p99: 1_999, max: 3_000 }];
        report.herd = vec![HerdRound { lost: 0, doubled: 0, drain_per_s: Some(90_000.0) }];
        report.memory = Some(QueueMemory { bytes_per_timer: 157.6, bytes_per_job: 341.2 });
        report.idle = vec![12.04];
        report
    }

    fn peer() -> PeerRounds {
        PeerRounds {
            position: 0,
            version: "1.0.0".into(),
            settings: "at its best".into(),
            process_per_s: vec![20_000.0, 35_000.0, 40_000.0],
            enqueue_per_s: vec![1.0],
            through_per_s: vec![20_000.0],
            with_leases_per_s: vec![10_000.0],
            cpu_us: vec![20.0],
            lateness: None,
        }
    }

    #[test]
    fn the_json_has_medians_on_top_and_rounds_below() {
        let json = report().to_json();
        assert_eq!(json["process_per_s"], 120_000);
        assert_eq!(json["rounds"]["process_per_s"], json!({ "min": 100_000, "median": 120_000, "max": 140_000 }));
        assert_eq!(json["lateness_ms"]["p50"], 1.2);
        assert_eq!(json["lateness_ms"]["max"], 9.88);
        assert_eq!(json["lateness_ms"]["early"], 0);
        assert_eq!(json["pickup_ms"]["p99"], 2);
        assert_eq!(json["herd"], json!({ "jobs": 100_000, "drain_per_s": 90_000, "lost": 0, "doubled": 0 }));
        assert_eq!((&json["bytes_per_timer"], &json["idle_commands_per_s"]), (&158.into(), &12.04.into()));
        assert_eq!(json["goals"]["process_per_s"], json!({ "goal": ">= 130000", "met": false }));
        assert!(json.get("peers").is_none() && !json.to_string().contains('\n'));
    }

    #[test]
    fn a_peer_is_compared_round_by_round() {
        let mut report = report();
        report.peers.insert("other".into(), peer());
        let json = report.to_json();
        assert_eq!(json["peers"], json!({ "other": 35_000 }));
        assert_eq!(json["ratios"], json!({ "other": 4 }));
        assert_eq!(json["through_ratios"], json!({ "other": 3 }));
        assert_eq!(json["with_leases_ratios"], json!({ "other": 6 }));
        assert_eq!(json["rounds"]["other ratio"]["min"], 3);
        assert_eq!(json["goals"]["other ratio"]["met"], true);
    }

    #[test]
    fn the_table_names_what_is_missed() {
        let text = report().to_text();
        let missed: Vec<&str> = text.lines().filter(|line| line.contains("missed")).collect();
        assert_eq!(missed.len(), 1, "{text}");
        assert!(missed[0].contains("process") && missed[0].contains(">= 130000"));
        let head = "2 cores, 24 GiB, Linux 6, load before 0.2\ndispatchq 0.1.0, Redis 7.0.15, rustc 1.95.0\n";
        assert!(text.starts_with(head), "{text}");
    }

    #[test]
    fn an_early_job_breaks_a_promise_and_a_slow_one_does_not() {
        let mut report = report();
        assert!(report.keeps_promises());
        report.lateness.push(late(5_000_000, 1));
        assert!(!report.keeps_promises());
        assert!(report.to_text().ends_with("run early."));
    }
}
