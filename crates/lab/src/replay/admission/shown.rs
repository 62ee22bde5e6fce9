//! Counts of admission requests from /metrics, which the dashboard uses.

use crate::testbed::{
    place_log::{PlaceCounts, PlaceLine},
    scrape::MetricsScrape,
};

use super::ledgers::PlaceLedger;

/// Counter of one line.
struct ShownCounter {
    line: PlaceLine,
    name: &'static str,
    labels: &'static [(&'static str, &'static str)],
}

const fn counter(line: PlaceLine, name: &'static str, labels: &'static [(&'static str, &'static str)]) -> ShownCounter {
    ShownCounter { line, name, labels }
}

const COUNTERS: [ShownCounter; 8] = [
    counter(PlaceLine::ChecksRefused, "dispatchq_refusals_total", &[("source", "check")]),
    counter(PlaceLine::CreationsRefused, "dispatchq_refusals_total", &[("source", "create")]),
    counter(PlaceLine::ChecksBypassed, "dispatchq_bypasses_total", &[("source", "check")]),
    counter(PlaceLine::CreationsBypassed, "dispatchq_bypasses_total", &[("source", "create")]),
    counter(PlaceLine::ChecksInShadow, "dispatchq_shadow_rejects_total", &[("source", "check")]),
    counter(PlaceLine::CreationsInShadow, "dispatchq_shadow_rejects_total", &[("source", "create")]),
    counter(PlaceLine::ServerBusy, "dispatcher_cancel_total", &[("reason", "server_busy")]),
    counter(PlaceLine::ThresholdReached, "dispatcher_threshold_reached_total", &[]),
];

const KNOWS: &[PlaceLine] = &[
    PlaceLine::ChecksRefused,
    PlaceLine::CreationsRefused,
    PlaceLine::ChecksBypassed,
    PlaceLine::CreationsBypassed,
    PlaceLine::ChecksInShadow,
    PlaceLine::CreationsInShadow,
    PlaceLine::ServerBusy,
    PlaceLine::ThresholdReached,
];

/// Label of areas whose id is not used as a label, for example because there are too many areas.
const OTHER: &str = "other";

/// Reads the counters. `None` if areas share a label.
pub(super) fn read_ledger(shown: &MetricsScrape) -> Option<PlaceLedger> {
    let mut counts = PlaceCounts::default();
    for ShownCounter { line, name, labels } in COUNTERS {
        for (area, count) in shown.sum_by("area_id", name, labels) {
            counts.add(&area, line, whole(count));
        }
    }
    for (line, source) in [(PlaceLine::ChecksRefused, "check"), (PlaceLine::CreationsRefused, "create")] {
        let undecided = [("source", source), ("cause", "unavailable")];
        for (area, count) in shown.sum_by("area_id", "dispatchq_refusals_total", &undecided) {
            counts.add(&area, line, -whole(count));
        }
    }
    let are_apart = counts.areas().all(|area| area != OTHER);
    are_apart.then_some(PlaceLedger { by: "metrics", knows: KNOWS, knows_outside: true, counts })
}

/// Converts a counter to a whole number.
#[expect(clippy::cast_possible_truncation, reason = "it saturates")]
fn whole(count: f64) -> i64 {
    count.round() as i64
}
