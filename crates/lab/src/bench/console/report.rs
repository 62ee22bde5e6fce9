//! What was seen, for people or as one JSON object.

use serde_json::{Value, json};

use super::{
    ConsoleOptions,
    history::FilledHistory,
    pages::ConsolePage,
    viewers::ViewerTally,
    visits::{MOST_STATEMENTS, PageVisits},
};
use crate::bench::{
    machine::{MachineInfo, SoftwareVersions},
    spread::{SamplePercentiles, us_to_ms},
    tables::{add_table_row, table_with_header},
};

/// Goals, for the sizes that are the defaults: of a page, and of lateness with viewers as against that without.
const MOST_PAGE_P99_MS: f64 = 50.0;
const MOST_TIMES_LATER: f64 = 1.25;
const MOST_LATER_MS: f64 = 2.0;

/// How late orders were, in microseconds, over all phases of a kind.
#[derive(Debug, Clone, Default)]
pub(super) struct LatenessSamples {
    pub(super) without: Vec<i64>,
    pub(super) with: Vec<i64>,
}

#[derive(Debug)]
pub(super) struct ConsoleFigures {
    pub(super) filled: FilledHistory,
    pub(super) pages: Vec<(ConsolePage, PageVisits)>,
    pub(super) lateness: LatenessSamples,
    pub(super) viewers: ViewerTally,
    /// Orders of the load that failed, and processes that would not end.
    pub(super) problems: Vec<String>,
}

#[derive(Debug)]
pub(super) struct ConsoleReport {
    pub(super) options: ConsoleOptions,
    pub(super) seen: ConsoleFigures,
    pub(super) machine: MachineInfo,
    pub(super) versions: SoftwareVersions,
}

impl ConsoleReport {
    /// Without viewers, and with them.
    fn lateness_percentiles(&self) -> [SamplePercentiles; 2] {
        [&self.seen.lateness.without, &self.seen.lateness.with]
            .map(|samples| SamplePercentiles::from_samples(samples.clone()))
    }

    fn are_pages_quick(&self) -> bool {
        self.seen.pages.iter().all(|(_, visits)| us_to_ms(visits.percentiles().p99) < MOST_PAGE_P99_MS)
    }

    fn is_dispatch_undisturbed(&self) -> bool {
        let [without, with] = self.lateness_percentiles().map(|lateness| us_to_ms(lateness.p99));
        with <= (without * MOST_TIMES_LATER).max(without + MOST_LATER_MS)
    }

    /// Speed is none of them: goals are reported beside.
    pub(super) fn find_violations(&self) -> Vec<String> {
        let mut violations = self.seen.problems.clone();
        for (page, visits) in &self.seen.pages {
            if let Some(first) = &visits.first_failure {
                violations.push(format!("{}: {} visits failed: {first}", page.name, visits.failures));
            }
            if visits.statements > MOST_STATEMENTS {
                let (path, count) = (page.path_of_visit(0), visits.statements);
                violations.push(format!("{}: {path} takes {count} statements, more than {MOST_STATEMENTS}", page.name));
            }
        }
        if let Some(first) = &self.seen.viewers.first_failure {
            violations.push(format!("viewers: {} answers failed: {first}", self.seen.viewers.failures));
        }
        for (samples, phase) in [(&self.seen.lateness.without, "without"), (&self.seen.lateness.with, "with")] {
            if samples.is_empty() {
                violations.push(format!("no order was dispatched {phase} viewers: ask for a longer measurement"));
            }
        }
        violations
    }

    pub(super) fn to_json(&self) -> Value {
        let pages: Vec<Value> = (self.seen.pages.iter())
            .map(|(page, visits)| {
                let times = visits.percentiles();
                json!({
                    "page": page.name,
                    "path": page.path_of_visit(0),
                    "p50_ms": us_to_ms(times.p50),
                    "p99_ms": us_to_ms(times.p99),
                    "max_ms": us_to_ms(times.max),
                    "statements": visits.statements,
                })
            })
            .collect();
        let [without, with] = self.lateness_percentiles().map(SamplePercentiles::to_json_ms);
        let lateness_goal = format!("p99 with viewers <= {MOST_TIMES_LATER} x without, or + {MOST_LATER_MS} ms");
        json!({
            "open": self.options.open,
            "closed": self.options.closed,
            "dead": self.options.dead,
            "viewers": self.options.viewers,
            "seconds": self.options.seconds,
            "orders_per_s": self.options.rate,
            "visits": self.options.visits,
            "fill_s": self.seen.filled.took.as_secs(),
            "database_bytes": self.seen.filled.bytes,
            "pages": pages,
            "viewers_saw": self.seen.viewers,
            "lateness_ms": { "without": without, "with": with },
            "goals": {
                "page_p99_ms": { "goal": format!("< {MOST_PAGE_P99_MS}"), "met": self.are_pages_quick() },
                "lateness_p99_ms": { "goal": lateness_goal, "met": self.is_dispatch_undisturbed() },
            },
            "violations": self.find_violations(),
            "machine": self.machine,
            "versions": self.versions,
        })
    }

    pub(super) fn to_text(&self) -> String {
        let mut table = table_with_header(&["page", "p50, ms", "p99, ms", "max, ms", "statements"]);
        for (page, visits) in &self.seen.pages {
            let times = visits.percentiles();
            let [p50, p99, max] = [times.p50, times.p99, times.max].map(|us| format!("{:.1}", us_to_ms(us)));
            add_table_row(&mut table, &[&page.name, &p50, &p99, &max, &visits.statements.to_string()]);
        }
        let ConsoleOptions { open, closed, dead, viewers, .. } = &self.options;
        let mut lines = vec![
            self.machine.to_text(),
            self.versions.to_text(),
            format!("{open} open orders, {closed} closed ones, {dead} dead jobs, {viewers} viewers"),
            table.to_string(),
        ];
        for (lateness, kind) in self.lateness_percentiles().into_iter().zip(["without", "with"]) {
            let [p50, p99, max] = [lateness.p50, lateness.p99, lateness.max].map(us_to_ms);
            lines.push(format!("lateness {kind} viewers: p50 {p50} ms, p99 {p99} ms, max {max} ms"));
        }
        for (goal, is_met) in
            [("pages", self.are_pages_quick()), ("lateness with viewers", self.is_dispatch_undisturbed())]
        {
            lines.push(format!("goal of {goal}: {}", if is_met { "met" } else { "not met" }));
        }
        let violations = self.find_violations();
        lines.extend(violations.iter().map(|violation| format!("VIOLATION {violation}")));
        if violations.is_empty() {
            lines.push(format!("Every page was answered, with {MOST_STATEMENTS} statements at most."));
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        options: ConsoleOptions,
    }

    fn report(without_ms: i64, with_ms: i64) -> ConsoleReport {
        ConsoleReport {
            options: Cli::parse_from(["bench"]).options,
            seen: ConsoleFigures {
                filled: FilledHistory { bytes: 1, took: Duration::ZERO },
                pages: Vec::new(),
                lateness: LatenessSamples { without: vec![without_ms * 1000], with: vec![with_ms * 1000] },
                viewers: ViewerTally::default(),
                problems: Vec::new(),
            },
            machine: MachineInfo { cores: 2, memory_gib: None, kernel: None, load: None },
            versions: SoftwareVersions { dispatchq: "", redis: String::new(), rustc: "", optimized: true },
        }
    }

    #[test]
    fn lateness_may_grow_by_a_quarter_or_by_two_milliseconds() {
        for (without, with, is_met) in [(1, 3, true), (1, 4, false), (100, 125, true), (100, 126, false), (5, 4, true)]
        {
            assert_eq!(report(without, with).is_dispatch_undisturbed(), is_met, "{without} {with}");
        }
    }

    #[test]
    fn a_slow_page_misses_a_goal_and_a_costly_one_is_a_violation() {
        let page = |path: &str| ConsolePage { name: path.to_owned(), paths: vec![path.to_owned()] };
        let mut report = report(1, 1);
        assert!(report.are_pages_quick() && report.find_violations().is_empty());
        let mut costly = PageVisits::from_millis(&[60]);
        costly.statements = 9;
        report.seen.pages.push((page("/console/areas"), costly));
        assert!(!report.are_pages_quick());
        assert_eq!(report.find_violations(), ["/console/areas: /console/areas takes 9 statements, more than 8"]);
        report.seen.lateness.with.clear();
        assert_eq!(report.find_violations().len(), 2);
    }
}
