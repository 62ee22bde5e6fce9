//! Admission in a replay: results of admission requests, as each source counts them. All counts must be equal.
//!
//! * `ledgers`: the counts of each source, and their differences.
//! * `rows`: counts from the tables and from the report of areas. `shown`: counts from /metrics, which the dashboard
//!   uses.
//! * `gauges`: gauges for waiting orders and utilisation, compared with the rows.

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

/// Results of admission requests.
#[derive(Debug, Serialize)]
pub(super) struct AdmissionSummary {
    pub(super) mode: AdmissionMode,
    /// Maximum number of waiting orders in each area.
    threshold: i64,
    /// Counts by source and area. Zero counts are omitted.
    counted_by: BTreeMap<&'static str, PlaceCounts>,
    /// Requests without an answer. If there are any, the client's counts are not compared.
    unanswered: u64,
    /// Number of times, with waiting orders, at which the gauges were compared with the rows.
    moments_compared: u64,
    /// Zones that cannot be areas, with the reason.
    left_out: Vec<String>,
}

/// Reads the counts of all sources after the processes have ended. Returns them with a line for each difference.
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
    /// Returns a row for each count over all areas, followed by the compared sources.
    pub(super) fn to_text(&self) -> String {
        let mut table = table_with_header(&["thresholds, all areas", "requests"]);
        if let Some(counts) = self.counted_by.get(rows::COUNTS) {
            for (name, line) in [
                ("checks refused", PlaceLine::ChecksRefused),
                ("creations refused", PlaceLine::CreationsRefused),
                ("admitted by bypass", PlaceLine::Bypassed),
                ("admitted by shadow mode", PlaceLine::InShadow),
            ] {
                add_table_row(&mut table, &[name, &counts.total(line).to_string()]);
            }
        }
        let parties: Vec<_> = self.counted_by.keys().copied().collect();
        let compared =
            format!("Counts compared in {}; gauges compared {} times.", parties.join(", "), self.moments_compared);
        let mut lines = vec![table.to_string(), compared];
        if self.unanswered > 0 {
            lines.push(format!(
                "The client's counts are not compared: {} of its requests had no answer.",
                self.unanswered
            ));
        }
        lines.extend(self.left_out.iter().cloned());
        lines.join("\n")
    }
}
