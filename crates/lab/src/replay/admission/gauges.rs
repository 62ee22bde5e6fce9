//! Compares the gauges for waiting orders and utilisation in /metrics with the rows.
//!
//! The two can be compared only while nothing changes. So the rows are read before and after a scrape, each time with
//! Postgres' snapshot. If the snapshots are equal, no transaction has ended in between, and the gauges must match the
//! rows exactly.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use foundation::db::Pool;

use crate::testbed::scrape::{MetricsReader, MetricsScrape};

const WAITING: &str = "dispatcher_waiting_orders_total";
const UTILISATION: &str = "dispatcher_threshold_utilization_ratio";
/// Gauge that comes from the same count as the compared gauges.
const HELD: &str = "dispatchq_orders_held";
/// Label of areas whose id is not used as a label.
const OTHER: &str = "other";
/// Maximum time of a scrape. A count that takes longer is shown with its previous value.
const LONGEST_SCRAPE: Duration = Duration::from_secs(2);
/// Maximum number of open orders. With more, a scrape may show an older count.
const MOST_OPEN: i64 = 10_000;
/// Ratios are shown with three decimals.
const TOLERANCE: f64 = 1e-6;

/// Compares the gauges with the rows, and collects the differences.
#[derive(Debug)]
pub(in crate::replay) struct GaugeWatch {
    reader: MetricsReader,
    threshold: f64,
    moments: u64,
    differences: BTreeSet<String>,
}

/// Waiting orders in one snapshot.
#[derive(Debug, PartialEq)]
struct WaitingRows {
    snapshot: String,
    open: i64,
    /// Number of waiting orders by area.
    waiting: BTreeMap<String, f64>,
}

impl GaugeWatch {
    pub(in crate::replay) fn new(reader: MetricsReader, threshold: u32) -> Self {
        Self { reader, threshold: threshold.into(), moments: 0, differences: BTreeSet::new() }
    }

    pub(in crate::replay) async fn scrape(&self) -> anyhow::Result<MetricsScrape> {
        self.reader.scrape().await
    }

    /// Compares once, if nothing changes during the scrape. Skips a process that does not answer.
    pub(in crate::replay) async fn compare_once(&mut self, db: &Pool) -> anyhow::Result<()> {
        let before = read_waiting(db).await?;
        let begun = Instant::now();
        let Ok(shown) = self.reader.scrape().await else { return Ok(()) };
        // Without a count the gauges keep their previous values.
        let is_counted = shown.value(HELD, &[]).is_some_and(|held| !held.is_nan());
        let is_late = begun.elapsed() > LONGEST_SCRAPE;
        if !is_counted || is_late || before.open > MOST_OPEN || before != read_waiting(db).await? {
            return Ok(());
        }
        self.moments += u64::from(!before.waiting.is_empty());
        self.differences.extend(compare_gauges(&shown, &before.waiting, self.threshold));
        Ok(())
    }

    /// Returns the number of comparisons with waiting orders, and the differences.
    pub(super) fn into_findings(self) -> (u64, Vec<String>) {
        (self.moments, self.differences.into_iter().collect())
    }
}

async fn read_waiting(db: &Pool) -> Result<WaitingRows, sqlx::Error> {
    let rows: Vec<(String, i64, Option<String>, i64)> = sqlx::query_as(
        "-- replay waiting orders
         SELECT pg_current_snapshot()::text, (SELECT count(*) FROM orders WHERE closed_at IS NULL), w.area_id,
                coalesce(w.orders, 0)
         FROM (SELECT 1) AS one
         LEFT JOIN (SELECT area_id, count(*) AS orders FROM orders
                    WHERE closed_at IS NULL AND area_id IS NOT NULL
                      AND status IN ('PENDING_JOB_ID', 'ASSIGNED', 'DISPATCHING', 'PENDING')
                      AND lifetime_deadline > dispatchq_now()
                    GROUP BY area_id) AS w ON true",
    )
    .fetch_all(db)
    .await?;
    let (snapshot, open) = rows.first().map(|row| (row.0.clone(), row.1)).unwrap_or_default();
    #[expect(clippy::cast_precision_loss, reason = "counts of orders")]
    let waiting = rows.into_iter().filter_map(|(_, _, area, orders)| Some((area?, orders as f64))).collect();
    Ok(WaitingRows { snapshot, open, waiting })
}

/// Returns a line for each gauge that differs from the rows.
fn compare_gauges(shown: &MetricsScrape, waiting: &BTreeMap<String, f64>, threshold: f64) -> Vec<String> {
    let (waiting_shown, ratios) = (shown.sum_by("area_id", WAITING, &[]), shown.sum_by("area_id", UTILISATION, &[]));
    if waiting_shown.contains_key(OTHER) {
        return Vec::new();
    }
    let areas: BTreeSet<&String> = waiting.keys().chain(waiting_shown.keys()).chain(ratios.keys()).collect();
    let mut differences = Vec::new();
    for area in areas {
        let of = |gauges: &BTreeMap<String, f64>| gauges.get(area).copied().unwrap_or(0.0);
        let (rows, gauge) = (of(waiting), of(&waiting_shown));
        if (rows - gauge).abs() > TOLERANCE {
            differences.push(format!("gauges_agree: area '{area}': {rows} orders wait, {WAITING} shows {gauge}"));
        }
        // An area that is not in the file has no threshold, and therefore no ratio.
        let Some(ratio) = ratios.get(area) else { continue };
        // A threshold of 0 is always reached.
        let used = if threshold < 1.0 { rows.max(1.0) } else { rows / threshold };
        let expected = (used * 1000.0).round() / 1000.0;
        if (ratio - expected).abs() > TOLERANCE {
            differences.push(format!(
                "gauges_agree: area '{area}': the utilisation is {expected}, {UTILISATION} shows {ratio}"
            ));
        }
    }
    differences
}

/// Returns whether a process shows the utilisation of this area. It then knows the area's limits, and all earlier
/// settings.
pub(in crate::replay) fn knows_area(shown: &MetricsScrape, area: &str) -> bool {
    [area, OTHER].iter().any(|label| shown.value(UTILISATION, &[("area_id", label)]).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gauge_off_by_one_order_is_reported() {
        let shown = |waiting: u32, ratio: f64| {
            MetricsScrape::parse(&format!(
                "{WAITING}{{area_id=\"A\",service_type=\"RIDE\"}} {waiting}\n{UTILISATION}{{area_id=\"A\"}} {ratio}\n\
                 {UTILISATION}{{area_id=\"B\"}} 0\n"
            ))
        };
        let rows = BTreeMap::from([("A".to_owned(), 5.0)]);
        let compare = |waiting: u32, ratio: f64| compare_gauges(&shown(waiting, ratio), &rows, 15.0).len();
        assert_eq!([compare(5, 0.333), compare(4, 0.333), compare(4, 0.267)], [0, 1, 2]);
        assert!(knows_area(&shown(5, 0.3), "A") && !knows_area(&shown(5, 0.3), "C"));
    }
}
