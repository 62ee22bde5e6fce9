//! Admission in a replay: what became of requests for places, by all who count it. They must agree to the last one.
//!
//! * `ledgers`: what each of them counted, and where two differ.
//! * `rows`: what the tables and the report of areas say. `shown`: what /metrics says, which the dashboard draws.
//! * `gauges`: waiting orders and utilisation as /metrics shows them, beside the rows.

mod gauges;
mod ledgers;
mod rows;
mod shown;

use std::collections::BTreeMap;

use serde::Serialize;

pub(super) use self::gauges::{GaugeWatch, knows_area};
use self::ledgers::PlaceLedger;
use super::options::{AdmissionMode, ReplayOptions};
use crate::testbed::{
    place_log::{PlaceCounts, PlaceLine, ToldPlaces},
    scrape::MetricsScrape,
};
use dispatch::app::App;

/// Areas that the table for people shows.
const MOST_ROWS: usize = 20;

/// What became of requests for places.
#[derive(Debug, Serialize)]
pub(super) struct AdmissionSummary {
    pub(super) mode: AdmissionMode,
    /// Orders that may wait in each area.
    threshold: i64,
    /// Who counted, by area, and what was counted; what is 0 is left out.
    counted_by: BTreeMap<&'static str, PlaceCounts>,
    /// Requests without an answer. With any, what the client counted is compared with nothing.
    unanswered: u64,
    /// Moments with waiting orders at which the gauges of /metrics were compared with the rows.
    moments_compared: u64,
    /// Zones that can be no areas, and why.
    left_out: Vec<String>,
}

/// Reads what all parties counted, once the processes have ended; returns it with a line for each difference.
pub(super) async fn compare_counts(
    app: &App,
    options: &ReplayOptions,
    told: ToldPlaces,
    shown: &MetricsScrape,
    gauges: GaugeWatch,
    left_out: Vec<String>,
) -> anyhow::Result<(AdmissionSummary, Vec<String>)> {
    let mut ledgers = rows::read_ledgers(app).await?;
    ledgers.extend(shown::read_ledger(shown));
    if told.unanswered == 0 {
        ledgers.push(PlaceLedger::of_client(told.counts));
    }
    let (moments_compared, mut differences) = gauges.into_findings();
    differences.extend(ledgers::find_differences(&ledgers));
    let summary = AdmissionSummary {
        mode: options.admission_mode(),
        threshold: options.max_waiting_orders().into(),
        counted_by: ledgers.into_iter().map(|ledger| (ledger.by, ledger.counts)).collect(),
        unanswered: told.unanswered,
        moments_compared,
        left_out,
    };
    Ok((summary, differences))
}

impl AdmissionSummary {
    /// Headings, and a row for each area with a refusal, a bypass or a request that shadow mode let in: the most first; then all
    /// together.
    pub(super) fn table_rows(&self) -> ([&'static str; 5], Vec<[String; 5]>) {
        let headings = ["area", "refused: checks, creations", "bypassed", "in shadow", "utilisation met: mean, most"];
        let Some(counts) = self.counted_by.get(rows::COUNTS) else { return (headings, Vec::new()) };
        let met = |area: &str| {
            [PlaceLine::Refused, PlaceLine::Bypassed, PlaceLine::InShadow]
                .map(|line| counts.get(area, line))
                .iter()
                .sum::<i64>()
        };
        let mut areas: Vec<&str> = counts.areas().filter(|area| met(area) > 0).collect();
        areas.sort_by_key(|area| std::cmp::Reverse(met(area)));
        let row = |name: String, count: &dyn Fn(PlaceLine) -> i64| {
            use PlaceLine as Line;
            let pair = |[checks, creations]: [Line; 2]| format!("{}, {}", count(checks), count(creations));
            [
                name,
                pair([Line::ChecksRefused, Line::CreationsRefused]),
                pair([Line::ChecksBypassed, Line::CreationsBypassed]),
                pair([Line::ChecksInShadow, Line::CreationsInShadow]),
                self.utilisation_text(count(Line::WaitingMet), count(Line::Checks), count(Line::MostWaiting)),
            ]
        };
        let left_out = areas.len().saturating_sub(MOST_ROWS);
        areas.truncate(MOST_ROWS);
        let mut table: Vec<_> = areas
            .into_iter()
            .map(|area| {
                let name = if area.is_empty() { "outside of all areas" } else { area };
                row(name.to_owned(), &|line| counts.get(area, line))
            })
            .collect();
        if left_out > 0 {
            table.push([
                format!("and {left_out} areas with less"),
                String::new(),
                String::new(),
                String::new(),
                String::new(),
            ]);
        }
        let most = counts.areas().map(|area| counts.get(area, PlaceLine::MostWaiting)).max().unwrap_or(0);
        let all = |line: PlaceLine| if line == PlaceLine::MostWaiting { most } else { counts.total(line) };
        table.push(row("all areas".to_owned(), &all));
        (headings, table)
    }

    /// What was compared, and what was left out.
    pub(super) fn compared_text(&self) -> String {
        let parties: Vec<_> = self.counted_by.keys().copied().collect();
        let unanswered = match self.unanswered {
            0 => String::new(),
            n => format!("; the client is left out: {n} of its requests had no answer"),
        };
        let mut lines = vec![format!(
            "Counted by {}{unanswered}. Waiting orders and utilisation in /metrics were compared with the rows at {} moments.",
            parties.join(", "),
            self.moments_compared
        )];
        lines.extend(self.left_out.iter().cloned());
        lines.join("\n")
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of orders")]
    fn utilisation_text(&self, met: i64, checks: i64, most: i64) -> String {
        if checks == 0 {
            return "-".to_owned();
        }
        let percent = |waiting: f64| 100.0 * waiting / self.threshold.max(1) as f64;
        format!("{:.0} %, {:.0} %", percent(met as f64 / checks as f64), percent(most as f64))
    }
}

#[cfg(test)]
pub(super) mod fixture {
    use super::*;

    /// Six checks and a creation at a threshold of 4.
    pub(crate) fn example_summary() -> AdmissionSummary {
        let mut counts = PlaceCounts::default();
        counts.add_checks("DOCKS", 2, 4);
        counts.add_checks("DOCKS", 4, 2);
        for (line, count) in [(PlaceLine::ChecksRefused, 2), (PlaceLine::CreationsRefused, 1), (PlaceLine::Refused, 3)]
        {
            counts.add("DOCKS", line, count);
        }
        counts.add_checks("HILL", 1, 1);
        AdmissionSummary {
            mode: AdmissionMode::Enforced,
            threshold: 4,
            counted_by: BTreeMap::from([(rows::COUNTS, counts)]),
            unanswered: 0,
            moments_compared: 3,
            left_out: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_see_the_areas_that_refused_and_all_together() {
        let (headings, rows) = fixture::example_summary().table_rows();
        assert_eq!((headings.len(), rows.len()), (5, 2));
        assert_eq!(rows[0], ["DOCKS", "2, 1", "0, 0", "0, 0", "67 %, 100 %"].map(str::to_owned));
        assert_eq!(rows[1], ["all areas", "2, 1", "0, 0", "0, 0", "61 %, 100 %"].map(str::to_owned));
    }

    #[test]
    fn a_client_that_got_no_answer_is_named() {
        let summary = AdmissionSummary { unanswered: 2, ..fixture::example_summary() };
        assert!(summary.compared_text().contains("the client is left out: 2 of its requests"));
        assert!(fixture::example_summary().compared_text().ends_with("at 3 moments."));
    }
}
