//! The figures beside their goals: a table for people, one JSON object for programs.

use std::collections::BTreeMap;

use comfy_table::{Cell, CellAlignment, Table, presets::UTF8_BORDERS_ONLY};
use serde_json::{Map, Value, json};

use super::{
    herd::Herd,
    lateness::Lateness,
    machine::{Machine, Versions},
    memory::Memory,
    options::Sizes,
    peer,
    spread::{Percentiles, Spread},
    throughput::Throughput,
};

/// All that was measured, round by round.
#[derive(Debug)]
pub(super) struct Report {
    machine: Machine,
    versions: Versions,
    sizes: Sizes,
    pub(super) throughput: Vec<Throughput>,
    pub(super) lateness: Vec<Lateness>,
    pub(super) pickup: Vec<Percentiles>,
    pub(super) herd: Vec<Herd>,
    pub(super) memory: Option<Memory>,
    pub(super) idle: Vec<f64>,
    /// By name.
    pub(super) peers: BTreeMap<String, Peer>,
}

/// Another queue, round by round.
#[derive(Debug)]
pub(super) struct Peer {
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
    pub(super) lateness: Option<peer::Lateness>,
}

/// What a figure is to be.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Goal {
    AtLeast(f64),
    AtMost(f64),
    /// Told for the record.
    None,
}

impl Goal {
    fn is_met(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(least) => figure >= least,
            Self::AtMost(most) => figure <= most,
            Self::None => true,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtLeast(least) => format!(">= {}", shown(least)),
            Self::AtMost(most) => format!("<= {}", shown(most)),
            Self::None => String::new(),
        }
    }
}

/// One line of the table, and one entry under `rounds` in the JSON.
struct Figure {
    name: String,
    text: String,
    goal: Goal,
    spread: Spread,
}

impl Report {
    pub(super) fn new(machine: Machine, versions: Versions, sizes: Sizes) -> Self {
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
        throughput && herd && self.early() == 0
    }

    fn early(&self) -> u32 {
        self.lateness.iter().map(|round| round.observed.early).sum()
    }

    fn of_throughput(&self, figure: fn(&Throughput) -> f64) -> Spread {
        Spread::of(self.throughput.iter().map(figure))
    }

    fn late_ms(&self, figure: fn(&Percentiles) -> i64) -> Spread {
        Spread::of(self.lateness.iter().map(|round| ms(figure(&round.observed.lateness_us))))
    }

    fn pickup_ms(&self, figure: fn(&Percentiles) -> i64) -> Spread {
        Spread::of(self.pickup.iter().map(|round| ms(figure(round))))
    }

    fn drain_per_s(&self) -> Spread {
        Spread::of(self.herd.iter().map(|round| round.drain_per_s.unwrap_or_default()))
    }

    /// Ours over theirs, each round by itself: both then met the same machine.
    fn ratio(&self, ours: fn(&Throughput) -> f64, theirs: &[f64]) -> Spread {
        Spread::of(self.throughput.iter().map(ours).zip(theirs).map(|(ours, theirs)| ours / theirs.max(1.0)))
    }

    fn process_ratio(&self, peer: &Peer) -> Spread {
        self.ratio(|round| round.process_per_s, &peer.process_per_s)
    }

    fn through_ratio(&self, peer: &Peer) -> Spread {
        self.ratio(|round| round.through_per_s, &peer.through_per_s)
    }

    fn with_leases_ratio(&self, peer: &Peer) -> Spread {
        self.ratio(|round| round.through_per_s, &peer.with_leases_per_s)
    }

    fn figures(&self) -> Vec<Figure> {
        let figure = |name: &str, text: &str, goal: Goal, spread: Spread| Figure {
            name: name.to_owned(),
            text: text.to_owned(),
            goal,
            spread,
        };
        let memory = |bytes: fn(&Memory) -> f64| Spread::of(self.memory.iter().map(bytes));
        let mut figures = vec![
            figure(
                "process_per_s",
                "process: take, run, settle; jobs/s",
                Goal::AtLeast(130_000.0),
                self.of_throughput(|round| round.process_per_s),
            ),
            figure(
                "process_cpu_us_worker",
                "process: processor time of the worker; us/job",
                Goal::None,
                self.of_throughput(|round| round.worker_cpu_us.unwrap_or_default()),
            ),
            figure(
                "process_cpu_us_redis",
                "process: processor time of Redis; us/job",
                Goal::None,
                self.of_throughput(|round| round.redis_cpu_us),
            ),
            figure(
                "metered_per_s",
                "process, metrics recorded; jobs/s",
                Goal::None,
                self.of_throughput(|round| round.metered_per_s),
            ),
            figure(
                "metered_cpu_us_worker",
                "process, metrics recorded: processor time of the worker; us/job",
                Goal::None,
                self.of_throughput(|round| round.metered_cpu_us.unwrap_or_default()),
            ),
            figure(
                "enqueue_per_s",
                "enqueue in batches of 500; jobs/s",
                Goal::AtLeast(120_000.0),
                self.of_throughput(|round| round.enqueue_per_s),
            ),
            figure(
                "through_per_s",
                "both at once; jobs/s",
                Goal::None,
                self.of_throughput(|round| round.through_per_s),
            ),
            figure("lateness_p50_ms", "lateness p50; ms", Goal::AtMost(2.0), self.late_ms(|late| late.p50)),
            figure("lateness_p99_ms", "lateness p99; ms", Goal::AtMost(5.0), self.late_ms(|late| late.p99)),
            figure("lateness_max_ms", "lateness max; ms", Goal::None, self.late_ms(|late| late.max)),
            figure(
                "early",
                "jobs run early",
                Goal::AtMost(0.0),
                Spread::of(self.lateness.iter().map(|round| f64::from(round.observed.early))),
            ),
            figure("pickup_p50_ms", "pickup by an idle worker p50; ms", Goal::AtMost(1.0), self.pickup_ms(|p| p.p50)),
            figure("pickup_p99_ms", "pickup by an idle worker p99; ms", Goal::AtMost(5.0), self.pickup_ms(|p| p.p99)),
            figure("herd_drain_per_s", "herd: drained; jobs/s", Goal::None, self.drain_per_s()),
            figure(
                "herd_lost",
                "herd: lost",
                Goal::AtMost(0.0),
                Spread::of(self.herd.iter().map(|round| f64::from(round.lost))),
            ),
            figure(
                "herd_doubled",
                "herd: run twice",
                Goal::AtMost(0.0),
                Spread::of(self.herd.iter().map(|round| f64::from(round.doubled))),
            ),
            figure("bytes_per_timer", "bytes per order timer", Goal::AtMost(160.0), memory(|m| m.bytes_per_timer)),
            figure("bytes_per_job", "bytes per job with payload", Goal::AtMost(350.0), memory(|m| m.bytes_per_job)),
            figure(
                "idle_commands_per_s",
                "8 idle workers: commands/s",
                Goal::AtMost(50.0),
                Spread::of(self.idle.iter().copied()),
            ),
        ];
        for (name, peer) in &self.peers {
            figures.push(figure(
                &format!("{name} process_per_s"),
                &format!("{name} {}: process; jobs/s", peer.version),
                Goal::None,
                Spread::of(peer.process_per_s.iter().copied()),
            ));
            figures.push(figure(
                &format!("{name} process_cpu_us"),
                &format!("{name}: processor time with Redis; us/job"),
                Goal::None,
                Spread::of(peer.cpu_us.iter().copied()),
            ));
            figures.push(figure(
                &format!("{name} ratio"),
                &format!("process, times {name}"),
                Goal::AtLeast(4.0),
                self.process_ratio(peer),
            ));
            figures.push(figure(
                &format!("{name} through_per_s"),
                &format!("{name}: both at once; jobs/s"),
                Goal::None,
                Spread::of(peer.through_per_s.iter().copied()),
            ));
            figures.push(figure(
                &format!("{name} through_ratio"),
                &format!("both at once, times {name}"),
                Goal::None,
                self.through_ratio(peer),
            ));
            if !peer.with_leases_per_s.is_empty() {
                figures.push(figure(
                    &format!("{name} with_leases_per_s"),
                    &format!("{name} with leases: both at once; jobs/s"),
                    Goal::None,
                    Spread::of(peer.with_leases_per_s.iter().copied()),
                ));
                figures.push(figure(
                    &format!("{name} with_leases_ratio"),
                    &format!("both at once, times {name} with leases"),
                    Goal::None,
                    self.with_leases_ratio(peer),
                ));
            }
        }
        figures
    }

    /// The table, with what it comes from above it.
    pub(super) fn text(&self) -> String {
        let Sizes { throughput_jobs, pending, due_per_s, herd_jobs, .. } = self.sizes;
        let mut table = Table::new();
        table.load_style(UTF8_BORDERS_ONLY);
        let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        table.set_header(["figure", "goal", "median", "min", "max", ""].map(|name| match name {
            "figure" => Cell::new(name),
            name => right(name.to_owned()),
        }));
        for Figure { text, goal, spread, .. } in self.figures() {
            let verdict = if goal.is_met(spread.median) { "" } else { "missed" };
            table.add_row([
                Cell::new(text),
                right(goal.text()),
                right(shown(spread.median)),
                right(shown(spread.min)),
                right(shown(spread.max)),
                Cell::new(verdict),
            ]);
        }
        let mut lines = vec![
            self.machine.text(),
            self.versions.text(),
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
                    shown(late.p50),
                    shown(late.p99),
                    shown(late.max)
                )
            }));
        }
        if !self.keeps_promises() {
            lines.push("A promise is broken: jobs were lost, run twice or run early.".to_owned());
        }
        lines.join("\n")
    }

    pub(super) fn json(&self) -> Value {
        let figures = self.figures();
        let goals = figures.iter().filter(|figure| figure.goal != Goal::None).map(|figure| {
            let goal = json!({ "goal": figure.goal.text(), "met": figure.goal.is_met(figure.spread.median) });
            (figure.name.clone(), goal)
        });
        let rounds = figures.iter().map(|Figure { name, spread, .. }| {
            let Spread { min, median, max } = *spread;
            (name.clone(), json!({ "min": number(min), "median": number(median), "max": number(max) }))
        });
        let median = |spread: Spread| number(spread.median);
        let worst = |spread: Spread| number(spread.max);
        let memory = |bytes: fn(&Memory) -> f64| self.memory.as_ref().map(|memory| number(bytes(memory)));
        let of_peers = |figure: &dyn Fn(&Peer) -> Value| -> Map<String, Value> {
            self.peers.iter().map(|(name, peer)| (name.clone(), figure(peer))).collect()
        };
        let mut json = json!({
            "machine": self.machine,
            "versions": self.versions,
            "quick": self.sizes == Sizes::QUICK,
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
                "early": self.early(),
                "jobs": self.lateness.iter().map(|round| round.observed.jobs).sum::<u32>(),
                "pending": self.sizes.pending,
                "due_per_s": median(Spread::of(self.lateness.iter().map(|round| round.due_per_s))),
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
            "idle_commands_per_s": median(Spread::of(self.idle.iter().copied())),
            "rounds": rounds.collect::<Map<_, _>>(),
            "goals": goals.collect::<Map<_, _>>(),
        });
        if !self.peers.is_empty() {
            json["peers"] = of_peers(&|peer| median(Spread::of(peer.process_per_s.iter().copied()))).into();
            json["ratios"] = of_peers(&|peer| median(self.process_ratio(peer))).into();
            json["through_ratios"] = of_peers(&|peer| median(self.through_ratio(peer))).into();
            json["with_leases_ratios"] = of_peers(&|peer| median(self.with_leases_ratio(peer))).into();
            json["peer_details"] = of_peers(&|peer| {
                let enqueue_per_s = median(Spread::of(peer.enqueue_per_s.iter().copied()));
                let through_per_s = median(Spread::of(peer.through_per_s.iter().copied()));
                let with_leases_per_s = median(Spread::of(peer.with_leases_per_s.iter().copied()));
                let cpu_us = median(Spread::of(peer.cpu_us.iter().copied()));
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
fn ms(us: i64) -> f64 {
    us as f64 / 1000.0
}

/// With no more digits than mean something.
fn rounded(figure: f64) -> f64 {
    if figure.abs() >= 100.0 { figure.round() } else { (figure * 100.0).round() / 100.0 }
}

fn shown(figure: f64) -> String {
    rounded(figure).to_string()
}

/// Whole numbers without a fraction.
#[expect(clippy::cast_possible_truncation, reason = "figures of a benchmark are far below 2^63")]
fn number(figure: f64) -> Value {
    let figure = rounded(figure);
    if figure.fract() == 0.0 { Value::from(figure as i64) } else { Value::from(figure) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::runs::Observed;

    fn late(p50: i64, early: u32) -> Lateness {
        let lateness_us = Percentiles { p50, p99: 4_000, max: 9_876 };
        let observed = Observed {
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
        Lateness { observed, due_per_s: 4_999.6 }
    }

    fn report() -> Report {
        let machine = Machine { cores: 2, memory_gib: Some(24), kernel: Some("Linux 6".into()), load: Some(0.25) };
        let versions = Versions { dispatchq: "0.1.0", redis: "7.0.15".into(), rustc: None, optimized: true };
        let mut report = Report::new(machine, versions, Sizes::FULL);
        for process_per_s in [100_000.4, 140_000.0, 120_000.0] {
            report.throughput.push(Throughput {
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
        report.pickup = vec![Percentiles { p50: 450, p99: 1_999, max: 3_000 }];
        report.herd = vec![Herd { lost: 0, doubled: 0, drain_per_s: Some(90_000.0) }];
        report.memory = Some(Memory { bytes_per_timer: 157.6, bytes_per_job: 341.2 });
        report.idle = vec![12.04];
        report
    }

    fn peer() -> Peer {
        Peer {
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
        let json = report().json();
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
        let json = report.json();
        assert_eq!(json["peers"], json!({ "other": 35_000 }));
        assert_eq!(json["ratios"], json!({ "other": 4 }));
        assert_eq!(json["through_ratios"], json!({ "other": 3 }));
        assert_eq!(json["with_leases_ratios"], json!({ "other": 6 }));
        assert_eq!(json["rounds"]["other ratio"]["min"], 3);
        assert_eq!(json["goals"]["other ratio"]["met"], true);
    }

    #[test]
    fn the_table_names_what_is_missed() {
        let text = report().text();
        let missed: Vec<&str> = text.lines().filter(|line| line.contains("missed")).collect();
        assert_eq!(missed.len(), 1, "{text}");
        assert!(missed[0].contains("process") && missed[0].contains(">= 130000"));
        assert!(text.starts_with("2 cores, 24 GiB, Linux 6, load before 0.2\ndispatchq 0.1.0, Redis 7.0.15\n"));
    }

    #[test]
    fn an_early_job_breaks_a_promise_and_a_slow_one_does_not() {
        let mut report = report();
        assert!(report.keeps_promises());
        report.lateness.push(late(5_000_000, 1));
        assert!(!report.keeps_promises());
        assert!(report.text().ends_with("run early."));
    }
}
