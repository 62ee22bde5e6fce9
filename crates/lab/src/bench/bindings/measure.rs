//! Measurements of the measured period: from the tables, and from the workers about their calls.

use anyhow::ensure;
use chrono::{DateTime, Utc};
use sqlx::{Connection, PgConnection};

use super::due_times::BegunCycle;
use crate::testbed::scrape::{MetricsReader, MetricsScrape};

/// Measurements from the tables. Times are on Postgres' clock.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CycleMeasures {
    pub(super) seconds: f64,
    /// Cycles that ended, with any result.
    pub(super) cycles: i64,
    /// Cycles among these that did not succeed.
    pub(super) failed: i64,
    /// Cycles in the whole run whose start never reached the provider.
    pub(super) never_arrived: i64,
    pub(super) begun: Vec<BegunCycle>,
}

impl CycleMeasures {
    pub(super) async fn read_measures(url: &str, from: DateTime<Utc>, to: DateTime<Utc>) -> anyhow::Result<Self> {
        // A separate connection without a statement timeout.
        let mut db = PgConnection::connect(url).await?;
        let (cycles, failed): (i64, i64) = sqlx::query_as(
            "-- cycles that ended
             SELECT count(*), count(*) FILTER (WHERE status <> 'SUKSES') FROM transactions
             WHERE ended_at >= $1 AND ended_at < $2",
        )
        .bind(from)
        .bind(to)
        .fetch_one(&mut db)
        .await?;
        let never_arrived: i64 = sqlx::query_scalar(
            "-- starts that never arrived
             SELECT count(*) FROM transactions WHERE status = 'GAGAL' AND reason = 'unknown_at_provider'",
        )
        .fetch_one(&mut db)
        .await?;
        // The first cycle after a start is due immediately, without an interval, so it is excluded.
        let begun: Vec<BegunCycle> = sqlx::query_as(
            "-- cycles that began
             SELECT right(t.binding_id, 6)::integer AS binding, t.cycle, t.started_at AS claimed_at
             FROM transactions t
             JOIN transactions b ON b.binding_id = t.binding_id AND b.cycle = t.cycle - 1 AND b.status = 'SUKSES'
             WHERE t.started_at >= $1 AND t.started_at < $2
               AND NOT EXISTS (SELECT 1 FROM binding_events e
                               WHERE e.binding_id = t.binding_id AND e.kind = 'started' AND e.cycle = t.cycle - 1)",
        )
        .bind(from)
        .bind(to)
        .fetch_all(&mut db)
        .await?;
        db.close().await?;
        let seconds = (to - from).as_seconds_f64();
        Ok(Self { seconds, cycles, failed, never_arrived, begun })
    }

    pub(super) fn cycles_per_s(&self) -> f64 {
        self.cycles as f64 / self.seconds.max(f64::EPSILON)
    }
}

/// Averages over all calls so far, from the workers' metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct CallMeasures {
    /// Time in milliseconds from the decision to make a call until its claim is durable.
    pub(super) claim_ms: f64,
}

impl CallMeasures {
    /// Scrapes the workers at these addresses. A worker that has just started may not answer yet.
    pub(super) async fn read_workers(addresses: &[String]) -> anyhow::Result<Self> {
        let mut scrapes = Vec::new();
        for address in addresses {
            scrapes.extend(MetricsReader::new(address)?.scrape().await);
        }
        ensure!(!scrapes.is_empty(), "no worker reports the time of its claims");
        Ok(Self::from_scrapes(&scrapes))
    }

    fn from_scrapes(scrapes: &[MetricsScrape]) -> Self {
        let total = |series: &str| -> f64 { scrapes.iter().filter_map(|scrape| scrape.value(series, &[])).sum() };
        let claims = total("dispatchq_binding_claim_seconds_count").max(f64::EPSILON);
        Self { claim_ms: 1000.0 * total("dispatchq_binding_claim_seconds_sum") / claims }
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_covers_all_calls_of_all_workers() {
        let worker = |claims: u32, secs: f64| {
            MetricsScrape::parse(&format!(
                "dispatchq_binding_claim_seconds_sum {secs}\ndispatchq_binding_claim_seconds_count {claims}\n"
            ))
        };
        let measures = CallMeasures::from_scrapes(&[worker(1, 0.004), worker(3, 0.024), MetricsScrape::default()]);
        assert!((measures.claim_ms - 7.0).abs() < 1e-9, "{measures:?}");
    }
}
