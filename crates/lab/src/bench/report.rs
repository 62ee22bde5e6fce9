//! All that was measured, and what of it a figure is made of.
//!
//! `figures`: each figure beside its goal. `table`: the report for people. `json`: the report for programs.

mod figures;
mod json;
mod table;

use std::collections::BTreeMap;

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
}

#[expect(clippy::cast_precision_loss, reason = "microseconds of less than 285 years")]
fn us_to_ms(us: i64) -> f64 {
    us as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
