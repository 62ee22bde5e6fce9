//! What shards cost, for people or as one JSON object.

use serde_json::{Value, json};

use super::plain::PlainTurn;
use crate::bench::{
    machine::{MachineInfo, SoftwareVersions},
    spread::{RoundSpread, round_to_digits, us_to_ms},
    tables::{add_table_row, table_with_header},
};

#[derive(Debug)]
pub(super) struct PlainReport {
    pub(super) jobs: u32,
    pub(super) rounds: usize,
    /// A number of shards, and its turns.
    pub(super) by_shards: Vec<(u16, Vec<PlainTurn>)>,
    pub(super) machine: MachineInfo,
    pub(super) versions: SoftwareVersions,
}

impl PlainReport {
    /// Jobs that were lost, ran twice, or ran before they were due.
    fn faults(&self) -> [u32; 3] {
        let turns = self.by_shards.iter().flat_map(|(_, turns)| turns);
        turns.flat_map(|turn| [turn.waiting, turn.timed]).fold([0; 3], |[lost, doubled, early], observed| {
            [lost + observed.lost, doubled + observed.doubled, early + observed.early]
        })
    }

    pub(super) fn violations(&self) -> Vec<String> {
        let named = ["lost", "run twice", "run before their due time"].into_iter().zip(self.faults());
        named.filter(|(_, jobs)| *jobs > 0).map(|(what, jobs)| format!("{jobs} jobs were {what}")).collect()
    }

    /// At the top are the figures of the greatest number of shards.
    pub(super) fn to_json(&self) -> Value {
        let by_shards: Vec<Value> =
            self.by_shards.iter().map(|(shards, turns)| self.shards_json(*shards, turns)).collect();
        let greatest = by_shards.iter().max_by_key(|figures| figures["shards"].as_u64()).cloned().unwrap_or_default();
        let [lost, doubled, early] = self.faults();
        json!({
            "shards": greatest["shards"],
            "process_per_cpu_s": greatest["process_per_cpu_s"]["median"],
            "lateness_ms": greatest["lateness_ms"],
            "failovers": 0,
            "migrated_slots": 0,
            "lost": lost,
            "doubled": doubled,
            "early": early,
            "violations": self.violations(),
            "by_shards": by_shards,
            "jobs": self.jobs,
            "rounds": self.rounds,
            "machine": self.machine,
            "versions": self.versions,
        })
    }

    fn shards_json(&self, shards: u16, turns: &[PlainTurn]) -> Value {
        let spread = |figure: fn(&PlainTurn) -> f64| RoundSpread::over_rounds(turns.iter().map(figure));
        let late = |us: fn(&PlainTurn) -> i64| RoundSpread::over_rounds(turns.iter().map(|turn| us_to_ms(us(turn))));
        json!({
            "shards": shards,
            "process_per_s": spread_json(spread(|turn| turn.per_s), 0),
            "process_per_cpu_s": spread_json(spread(|turn| 1e6 / turn.cpu_us()), 0),
            "cpu_us_per_job": {
                "worker": spread_json(spread(|turn| turn.worker_cpu_us), 2),
                "redis": spread_json(spread(|turn| turn.redis_cpu_us), 2),
                "times_first": spread_json(self.times_first(turns), 3),
            },
            "lateness_ms": {
                "p50": late(|turn| turn.timed.lateness_us.p50).median,
                "p99": late(|turn| turn.timed.lateness_us.p99).median,
                "max": late(|turn| turn.timed.lateness_us.max).max,
            },
        })
    }

    /// Processor time per job beside that of the first number of shards in the same round.
    fn times_first(&self, turns: &[PlainTurn]) -> RoundSpread {
        let first = self.by_shards.first().map(|(_, turns)| turns.as_slice()).unwrap_or_default();
        RoundSpread::over_rounds(turns.iter().zip(first).map(|(turn, first)| turn.cpu_us() / first.cpu_us()))
    }

    pub(super) fn to_text(&self) -> String {
        let header = [
            "shards",
            "jobs/s",
            "worker, us",
            "Redis, us",
            "processor, times the first",
            "lateness p50 / p99 / max, ms",
        ];
        let mut table = table_with_header(&header);
        for (shards, turns) in &self.by_shards {
            let figures = self.shards_json(*shards, turns);
            let cpu = &figures["cpu_us_per_job"];
            let times = &cpu["times_first"];
            let late = &figures["lateness_ms"];
            let row = [
                shards.to_string(),
                figures["process_per_s"]["median"].to_string(),
                cpu["worker"]["median"].to_string(),
                cpu["redis"]["median"].to_string(),
                format!("{} ({} to {})", times["median"], times["min"], times["max"]),
                format!("{} / {} / {}", late["p50"], late["p99"], late["max"]),
            ];
            add_table_row(&mut table, &row.each_ref().map(String::as_str));
        }
        let head = format!(
            "{} jobs that do nothing on one Redis, medians of {} rounds\n{}\n{}",
            self.jobs,
            self.rounds,
            self.machine.to_text(),
            self.versions.to_text()
        );
        let mut lines = vec![head, table.to_string()];
        lines.extend(self.violations().into_iter().map(|violation| format!("VIOLATION {violation}")));
        if self.violations().is_empty() {
            lines.push("No job was lost, early or run twice.".to_owned());
        }
        lines.join("\n")
    }
}

fn spread_json(spread: RoundSpread, digits: i32) -> Value {
    let [min, median, max] = [spread.min, spread.median, spread.max].map(|figure| round_to_digits(figure, digits));
    json!({ "min": min, "median": median, "max": max })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{runs::ObservedRuns, spread::SamplePercentiles};

    fn turn(worker_cpu_us: f64, early: u32) -> PlainTurn {
        let observed = ObservedRuns {
            jobs: 10,
            lost: 0,
            doubled: 0,
            early,
            lateness_us: SamplePercentiles { p50: 1_000, p99: 2_000, max: 3_000 },
            last_due_ms: 0,
            began_us: 0,
            cpu_ms: Some(1),
            settled_us: Some(1),
        };
        PlainTurn { waiting: observed, timed: observed, per_s: 100.0, worker_cpu_us, redis_cpu_us: 5.0 }
    }

    fn report(by_shards: Vec<(u16, Vec<PlainTurn>)>) -> PlainReport {
        let versions = SoftwareVersions { dispatchq: "0", redis: "7.0".to_owned(), rustc: "1.95", optimized: true };
        PlainReport { jobs: 10, rounds: 3, by_shards, machine: MachineInfo::read_system(), versions }
    }

    #[test]
    fn each_turn_is_compared_with_the_first_number_of_shards_in_its_round() {
        let one = vec![turn(5.0, 0), turn(15.0, 0), turn(5.0, 0)];
        let four = vec![turn(6.0, 0), turn(17.0, 0), turn(5.2, 0)];
        let json = report(vec![(1, one), (4, four)]).to_json();
        assert_eq!((&json["shards"], &json["lost"], &json["violations"]), (&4.into(), &0.into(), &json!([])));
        assert_eq!(json["lateness_ms"], json!({ "p50": 1.0, "p99": 2.0, "max": 3.0 }));
        let times = |place: usize| json["by_shards"][place]["cpu_us_per_job"]["times_first"].clone();
        assert_eq!(times(0), json!({ "min": 1.0, "median": 1.0, "max": 1.0 }));
        assert_eq!(times(1), json!({ "min": 1.02, "median": 1.1, "max": 1.1 }));
        assert_eq!(json["process_per_cpu_s"], json!(90_909.0), "of the median turn with four");
    }

    #[test]
    fn a_job_that_ran_early_is_a_violation() {
        let early = report(vec![(1, vec![turn(5.0, 1)])]);
        assert_eq!(early.violations(), ["2 jobs were run before their due time"]);
        assert_eq!((&early.to_json()["early"], early.to_text().contains("VIOLATION")), (&2.into(), true));
    }
}
