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
use crate::{
    bench::frame::{add_table_row, table_with_header},
    testbed::{
        place_log::{PlaceCounts, PlaceLine, ToldPlaces},
        scrape::MetricsScrape,
    },
};
use app::App;

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
    /// A row for each count of all areas together, then what was compared.
    pub(super) fn to_text(&self) -> String {
        let mut table = table_with_header(&["thresholds, all areas", "requests"]);
        if let Some(counts) = self.counted_by.get(rows::COUNTS) {
            for (name, line) in [
                ("checks refused", PlaceLine::ChecksRefused),
                ("creations refused", PlaceLine::CreationsRefused),
                ("let in by a rule, though full", PlaceLine::Bypassed),
                ("let in by shadow mode", PlaceLine::InShadow),
            ] {
                add_table_row(&mut table, &[name, &counts.total(line).to_string()]);
            }
        }
        let parties: Vec<_> = self.counted_by.keys().copied().collect();
        let compared =
            format!("Counted alike by {}; gauges compared at {} moments.", parties.join(", "), self.moments_compared);
        let mut lines = vec![table.to_string(), compared];
        if self.unanswered > 0 {
            lines.push(format!("The client is left out: {} of its requests had no answer.", self.unanswered));
        }
        lines.extend(self.left_out.iter().cloned());
        lines.join("\n")
    }
}
