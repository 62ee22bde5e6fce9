//! Verdicts of admission requests: counted in memory and written to Postgres once a second.
//!
//! Requests do not wait for the write, and it does not need Redis. A process that dies loses the last second of counts.
//! While Postgres is unavailable, the counts stay in memory and are added later under their hour. A statement whose
//! response was lost may count twice.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use model::{
    admission::{
        limits::LoyaltyLevel,
        verdicts::{AdmissionSource, RefusalCause, RequestVerdict},
    },
    ids::{AreaId, ServiceType},
};
use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

use foundation::{
    db::{Connection, Pool},
    loops::LoopRegistry,
};

const WRITE_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of counters in one process. Beyond it, requests are counted without the number of waiting orders, so
/// a long outage uses bounded memory.
const MOST_LINES: usize = 20_000;
/// Maximum number of shadow refusals kept in one process. Further ones appear only in the log and in the counts.
const MOST_SHADOWS: usize = 10_000;
/// Stored value for an unknown number of waiting orders.
const UNKNOWN: i64 = -1;

/// Key of a counter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CountedRequest {
    /// `None`: outside all areas.
    pub area: Option<AreaId>,
    pub service_type: ServiceType,
    pub source: AdmissionSource,
    pub verdict: RequestVerdict,
    pub loyalty: Option<LoyaltyLevel>,
    /// Level from [`waiting_level`](model::admission::verdicts::waiting_level); `None`: unknown.
    pub waiting: Option<i64>,
}

/// A check that would have been refused if shadow mode were off.
#[derive(Debug, Clone, PartialEq)]
pub struct ShadowCheck {
    pub at: DateTime<Utc>,
    pub area: AreaId,
    pub service_type: ServiceType,
    pub waiting: Option<i64>,
    pub threshold: i64,
    pub channel: Option<String>,
    pub loyalty: Option<LoyaltyLevel>,
}

/// Requests that are not stored yet. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct AdmissionTally(Arc<Mutex<PendingCounts>>);

#[derive(Debug, Default)]
struct PendingCounts {
    requests: BTreeMap<(DateTime<Utc>, CountedRequest), i64>,
    shadows: Vec<ShadowCheck>,
    /// Number of shadow refusals that were dropped because the maximum was reached.
    left_out: u64,
}

impl PendingCounts {
    fn add_requests(&mut self, hour: DateTime<Utc>, mut request: CountedRequest, count: i64) {
        if self.requests.len() >= MOST_LINES {
            request.waiting = None;
        }
        *self.requests.entry((hour, request)).or_default() += count;
    }

    fn add_shadow(&mut self, shadow: ShadowCheck) {
        if self.shadows.len() < MOST_SHADOWS {
            self.shadows.push(shadow);
        } else {
            self.left_out += 1;
        }
    }
}

impl AdmissionTally {
    pub fn record_request(&self, now: DateTime<Utc>, request: CountedRequest) {
        self.lock_pending().add_requests(hour_of(now), request, 1);
    }

    /// Keeps a shadow check in memory until it is stored.
    pub fn record_shadow(&self, shadow: ShadowCheck) {
        self.lock_pending().add_shadow(shadow);
    }

    fn lock_pending(&self) -> MutexGuard<'_, PendingCounts> {
        self.0.lock()
    }

    /// Stores the counts in one transaction. On failure the counts stay in memory.
    pub async fn write_counts(&self, db: &Pool) -> Result<(), sqlx::Error> {
        let pending = std::mem::take(&mut *self.lock_pending());
        if pending.requests.is_empty() && pending.shadows.is_empty() {
            return Ok(());
        }
        // Dropping `taken` restores the counts, because the loop may cancel its turn before the commit.
        let mut taken = TakenCounts { tally: self, pending };
        let mut tx = db.begin().await?;
        insert_counts(&mut tx, &taken.pending.requests).await?;
        insert_shadows(&mut tx, &taken.pending.shadows).await?;
        tx.commit().await?;
        let kept = std::mem::take(&mut taken.pending);
        if kept.left_out > 0 {
            tracing::warn!(
                requests = kept.left_out,
                "Too many shadow refusals; some appear only in the log and the counts."
            );
        }
        Ok(())
    }

    /// Writes once a second until `stop` is cancelled, and then one last time.
    pub async fn keep_written(self, db: Pool, loops: LoopRegistry, stop: CancellationToken) {
        let turns = loops.register_loop("admission counts");
        let mut failing = false;
        loop {
            let ends = stop.run_until_cancelled(tokio::time::sleep(WRITE_EVERY)).await.is_none();
            let written = turns.run_turn(self.write_counts(&db)).await;
            let fails = !matches!(written, Some(Ok(())));
            // Logs once per outage, not every second.
            if fails && !failing {
                let error = written.and_then(Result::err).map_or_else(|| "no response".to_owned(), |e| e.to_string());
                tracing::warn!(%error, "The counts of admission requests could not be stored; the next turn stores them.");
            }
            failing = fails;
            if ends {
                return;
            }
        }
    }
}

/// Counts that are being written. Dropping them adds them to the tally again.
struct TakenCounts<'a> {
    tally: &'a AdmissionTally,
    pending: PendingCounts,
}

impl Drop for TakenCounts<'_> {
    fn drop(&mut self) {
        let back = std::mem::take(&mut self.pending);
        let mut pending = self.tally.lock_pending();
        for ((hour, request), count) in back.requests {
            pending.add_requests(hour, request, count);
        }
        for shadow in back.shadows {
            pending.add_shadow(shadow);
        }
        pending.left_out += back.left_out;
    }
}

/// Returns the start of the hour in UTC.
pub fn hour_of(at: DateTime<Utc>) -> DateTime<Utc> {
    let ms = at.timestamp_millis();
    DateTime::from_timestamp_millis(ms - ms.rem_euclid(3_600_000)).unwrap_or(at)
}

/// Inserts the counts in sorted order, so that two processes cannot deadlock.
async fn insert_counts(
    tx: &mut Connection,
    requests: &BTreeMap<(DateTime<Utc>, CountedRequest), i64>,
) -> Result<(), sqlx::Error> {
    let texts = |pick: fn(&CountedRequest) -> &str| -> Vec<&str> {
        requests.keys().map(|(_, request)| pick(request)).collect()
    };
    let numbers =
        |pick: fn(&CountedRequest) -> i64| -> Vec<i64> { requests.keys().map(|(_, request)| pick(request)).collect() };
    sqlx::query(
        "-- keep counts of admission
         INSERT INTO admission_counts AS c
             (hour, area_id, service_type, source, verdict, cause, loyalty, waiting, requests)
         SELECT * FROM unnest($1::timestamptz[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
                              $8::bigint[], $9::bigint[])
         ON CONFLICT (hour, area_id, service_type, source, verdict, cause, loyalty, waiting)
             DO UPDATE SET requests = c.requests + excluded.requests",
    )
    .bind(requests.keys().map(|(hour, _)| *hour).collect::<Vec<_>>())
    .bind(texts(|request| request.area.as_deref().unwrap_or_default()))
    .bind(texts(|request| request.service_type.as_str()))
    .bind(texts(|request| request.source.as_str()))
    .bind(texts(|request| request.verdict.as_str()))
    .bind(texts(|request| request.verdict.cause().map_or("none", RefusalCause::as_str)))
    .bind(texts(|request| request.loyalty.map_or("", LoyaltyLevel::as_str)))
    .bind(numbers(|request| request.waiting.unwrap_or(UNKNOWN)))
    .bind(requests.values().copied().collect::<Vec<i64>>())
    .execute(&mut *tx)
    .await?;
    Ok(())
}

async fn insert_shadows(tx: &mut Connection, shadows: &[ShadowCheck]) -> Result<(), sqlx::Error> {
    if shadows.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "-- keep shadow refusals
         INSERT INTO shadow_refusals (at, source, area_id, service_type, waiting, threshold, channel, loyalty_level)
         SELECT s.at, 'check', s.area_id, s.service_type, s.waiting, s.threshold, s.channel, s.loyalty_level
         FROM unnest($1::timestamptz[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::text[], $7::text[])
              AS s (at, area_id, service_type, waiting, threshold, channel, loyalty_level)",
    )
    .bind(shadows.iter().map(|s| s.at).collect::<Vec<_>>())
    .bind(shadows.iter().map(|s| s.area.as_str()).collect::<Vec<_>>())
    .bind(shadows.iter().map(|s| s.service_type.as_str()).collect::<Vec<_>>())
    .bind(shadows.iter().map(|s| s.waiting).collect::<Vec<_>>())
    .bind(shadows.iter().map(|s| s.threshold).collect::<Vec<_>>())
    .bind(shadows.iter().map(|s| s.channel.as_deref()).collect::<Vec<_>>())
    .bind(shadows.iter().map(|s| s.loyalty.map(LoyaltyLevel::as_str)).collect::<Vec<_>>())
    .execute(&mut *tx)
    .await?;
    Ok(())
}
