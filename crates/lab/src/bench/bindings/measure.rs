//! What the tables say of the time that was measured.

use chrono::{DateTime, Utc};
use sqlx::{Connection, PgConnection};

use super::due_times::BegunCycle;

/// Claims are dated in whole milliseconds, rounded down: on average so much of a claim is not its own.
const ROUNDED_MS: f64 = 0.5;

/// Times are those of Postgres.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CycleMeasures {
    pub(super) seconds: f64,
    /// Cycles that ended, however they did.
    pub(super) cycles: i64,
    /// Of these, cycles that did not succeed.
    pub(super) failed: i64,
    /// From the decision to make a call until its claim is durable and the call is sent, on average.
    pub(super) claim_ms: f64,
    /// In the whole run: cycles whose start never reached the provider.
    pub(super) never_arrived: i64,
    pub(super) begun: Vec<BegunCycle>,
}

impl CycleMeasures {
    pub(super) async fn read_measures(url: &str, from: DateTime<Utc>, to: DateTime<Utc>) -> anyhow::Result<Self> {
        // A connection of its own: nothing bounds how long a statement reads.
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
        let claim_ms: f64 = sqlx::query_scalar(
            "-- mean durable claim
             SELECT coalesce(avg(extract(epoch FROM e.sent_at - c.at)) * 1000, 0)::float8
             FROM transaction_snapshots c
             JOIN transaction_snapshots e
               ON e.binding_id = c.binding_id AND e.cycle = c.cycle AND e.call_no = c.call_no AND e.part = 'end'
             WHERE c.part = 'claim' AND c.at >= $1 AND c.at < $2 AND e.sent_at IS NOT NULL",
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
        // A cycle after a start is due at once, by no interval.
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
        Ok(Self { seconds, cycles, failed, claim_ms: (claim_ms - ROUNDED_MS).max(0.0), never_arrived, begun })
    }

    pub(super) fn cycles_per_s(&self) -> f64 {
        self.cycles as f64 / self.seconds.max(f64::EPSILON)
    }
}
