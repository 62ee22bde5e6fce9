//! What was seen, for people or as one JSON object.

use serde_json::{Map, Value, json};

use super::climb::{ClimbedRung, PhaseFigures};
use crate::bench::{
    machine::{MachineInfo, SoftwareVersions},
    spread::{RoundSpread, round_to_digits},
    tables::{add_table_row, table_with_header},
};

/// The name of the topmost rung.
pub(super) const ENGINE: &str = "engine";

/// The rung that no engine of these sets and leases can get below.
const LIMIT: &str = "least_work";

#[derive(Debug)]
pub(super) struct LadderReport {
    jobs: u32,
    machine: MachineInfo,
    versions: SoftwareVersions,
    /// From the lowest up, each with its rounds.
    rungs: Vec<(&'static str, Vec<ClimbedRung>)>,
    /// Jobs that were not settled, of all rungs and rounds.
    pub(super) left: u64,
}

impl LadderReport {
    pub(super) fn new(jobs: u32, machine: MachineInfo, versions: SoftwareVersions) -> Self {
        Self { jobs, machine, versions, rungs: Vec::new(), left: 0 }
    }

    pub(super) fn add_round(&mut self, name: &'static str, climbed: ClimbedRung) {
        self.left += climbed.left;
        match self.rungs.iter_mut().find(|(known, _)| *known == name) {
            Some((_, rounds)) => rounds.push(climbed),
            None => self.rungs.push((name, vec![climbed])),
        }
    }

    /// Microseconds of caller and Redis per job, to take and settle it, on a rung; `None` where the system does not tell.
    fn process_us(&self, name: &str) -> Option<f64> {
        let (_, rounds) = self.rungs.iter().find(|(known, _)| *known == name)?;
        let totals = rounds.iter().map(|round| round.process.client_us.map(|us| us + round.process.redis_us));
        let totals: Option<Vec<f64>> = totals.collect();
        totals.map(|totals| RoundSpread::over_rounds(totals).median)
    }

    /// From the limit to the engine.
    fn distance_us(&self) -> Option<f64> {
        Some(round_to_digits(self.process_us(ENGINE)? - self.process_us(LIMIT)?, 2))
    }

    pub(super) fn to_json(&self) -> Value {
        let rungs: Map<String, Value> =
            self.rungs.iter().map(|(name, rounds)| ((*name).to_owned(), rung_json(rounds))).collect();
        json!({
            "jobs": self.jobs,
            "rounds": self.rungs.first().map_or(0, |(_, rounds)| rounds.len()),
            "rungs": rungs,
            "distance_us": self.distance_us(),
            "left": self.left,
            "machine": self.machine,
            "versions": self.versions,
        })
    }

    pub(super) fn to_text(&self) -> String {
        let header = [
            "rung",
            "insert, jobs/s",
            "caller, us",
            "Redis, us",
            "take and settle, jobs/s",
            "caller, us",
            "Redis, us",
            "jobs per call",
        ];
        let mut table = table_with_header(&header);
        for (name, rounds) in &self.rungs {
            let insert = median_phase(rounds.iter().filter_map(|round| round.insert));
            let process = median_phase(rounds.iter().map(|round| round.process));
            let row = [*name].map(str::to_owned).into_iter().chain(phase_cells(insert)).chain(phase_cells(process));
            let calls = process.map_or_else(String::new, |phase| phase.jobs_per_call.round().to_string());
            let row: Vec<String> = row.chain([calls]).collect();
            add_table_row(&mut table, &row.iter().map(String::as_str).collect::<Vec<_>>());
        }
        let mut lines = vec![
            self.machine.to_text(),
            self.versions.to_text(),
            format!("{} jobs on each rung; processor time is per job", self.jobs),
            table.to_string(),
        ];
        lines.extend(self.distance_us().map(|us| format!("The engine is {us} us per job above the least work.")));
        if self.left > 0 {
            lines.push(format!("{} jobs were left.", self.left));
        }
        lines.join("\n")
    }
}

/// Each figure's median; `None` without rounds.
fn median_phase(rounds: impl Iterator<Item = PhaseFigures>) -> Option<PhaseFigures> {
    let rounds: Vec<PhaseFigures> = rounds.collect();
    let median = |figure: fn(&PhaseFigures) -> f64| RoundSpread::over_rounds(rounds.iter().map(figure)).median;
    let client: Option<Vec<f64>> = rounds.iter().map(|round| round.client_us).collect();
    (!rounds.is_empty()).then(|| PhaseFigures {
        per_s: median(|phase| phase.per_s),
        client_us: client.map(|us| RoundSpread::over_rounds(us).median),
        redis_us: median(|phase| phase.redis_us),
        jobs_per_call: median(|phase| phase.jobs_per_call),
    })
}

fn rung_json(rounds: &[ClimbedRung]) -> Value {
    let insert = median_phase(rounds.iter().filter_map(|round| round.insert));
    let process = median_phase(rounds.iter().map(|round| round.process));
    json!({ "insert": insert.map(phase_json), "process": process.map(phase_json) })
}

fn phase_json(phase: PhaseFigures) -> Value {
    json!({
        "per_s": phase.per_s.round(),
        "client_us": phase.client_us.map(|us| round_to_digits(us, 3)),
        "redis_us": round_to_digits(phase.redis_us, 3),
        "jobs_per_call": round_to_digits(phase.jobs_per_call, 1),
    })
}

/// Jobs per second, and microseconds of caller and Redis; empty where it was not measured.
fn phase_cells(phase: Option<PhaseFigures>) -> [String; 3] {
    phase.map_or_else(Default::default, |phase| {
        let client = phase.client_us.map_or_else(String::new, |us| format!("{us:.2}"));
        [phase.per_s.round().to_string(), client, format!("{:.2}", phase.redis_us)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn climbed(client_us: Option<f64>, redis_us: f64, left: u64) -> ClimbedRung {
        let phase = PhaseFigures { per_s: 200_000.4, client_us, redis_us, jobs_per_call: 500.0 };
        ClimbedRung { insert: None, process: phase, left }
    }

    fn report() -> LadderReport {
        let machine = MachineInfo { cores: 2, memory_gib: None, kernel: None, load: None };
        let versions =
            SoftwareVersions { dispatchq: "0.1.0", redis: "7.0.15".into(), rustc: "1.95.0", optimized: true };
        LadderReport::new(1_000, machine, versions)
    }

    #[test]
    fn the_distance_is_between_the_medians_of_both_ends() {
        let mut report = report();
        for redis_us in [2.0, 1.0, 1.5] {
            report.add_round(LIMIT, climbed(Some(0.5), redis_us, 0));
            report.add_round(ENGINE, climbed(Some(3.0), redis_us + 3.0, 1));
        }
        let json = report.to_json();
        assert_eq!((&json["distance_us"], &json["rounds"], &json["left"]), (&json!(5.5), &json!(3), &json!(3)));
        assert_eq!(json["rungs"][LIMIT]["process"]["redis_us"], 1.5);
        assert_eq!(json["rungs"][ENGINE]["insert"], Value::Null);
        let text = report.to_text();
        assert!(text.ends_with("The engine is 5.5 us per job above the least work.\n3 jobs were left."), "{text}");
    }

    #[test]
    fn without_processor_time_there_is_no_distance() {
        let mut report = report();
        report.add_round(LIMIT, climbed(None, 1.0, 0));
        report.add_round(ENGINE, climbed(None, 5.0, 0));
        assert_eq!(report.to_json()["distance_us"], Value::Null);
        assert!(report.to_text().contains("200000"));
    }
}
