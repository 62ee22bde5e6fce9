//! The number of queue shards, stored in Postgres and followed by every process.
//!
//! Each change inserts a row with the next generation; the highest generation applies. Every process reads it twice a
//! second. Workers then take jobs from the shards of the old and the new number, and jobs are enqueued by the new one.
//! A change has three steps:
//!
//! 1. It is made.
//! 2. It is derived: the reconciler has put the timers of all rows into their new shards.
//! 3. It is settled: the shards beyond the new number are empty.
//!
//! No further change is allowed until then.
//!
//! A process that does not know of a change yet enqueues jobs by the old number, into shards that are still open. If it
//! learns of the change only after those shards are closed, no job is lost: its timer becomes overdue, and the
//! reconciler enqueues it again.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use jobs::{Job, PeriodicTick, RunCycle, SettleTransaction, SubmitOtp};
use parking_lot::Mutex;
use serde_json::json;
use sqlx::{FromRow, PgExecutor};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    db::Pool,
    error::ServiceError,
    loops::LoopRegistry,
    staff_actions::{ActionAuthor, ActionValues, StaffAction, record_action},
};
use queue::{ShardCount, Shards, Store, StoreError};

/// Kinds that are always in the control shard, because one script transfers their slots or all processes look for them
/// there.
const CONTROL_KINDS: [&str; 4] = [RunCycle::KIND, SubmitOtp::KIND, SettleTransaction::KIND, PeriodicTick::KIND];
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Minimum time for which surplus shards stay open. Within it every process learns of the change.
const HEARD_WITHIN: Duration = Duration::from_secs(5);

/// A generation: its number of shards, its start, and the progress of the change.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct ShardGeneration {
    pub generation: i64,
    #[sqlx(try_from = "i16")]
    pub shards: ShardCount,
    #[sqlx(try_from = "i16")]
    pub shards_before: ShardCount,
    pub made_at: DateTime<Utc>,
    pub made_by: String,
    pub reason: Option<String>,
    pub derived_at: Option<DateTime<Utc>>,
    pub settled_at: Option<DateTime<Utc>>,
}

impl ShardGeneration {
    /// Returns the previous number, whose shards are still open, or the same number once the change is settled.
    fn open_before(&self) -> ShardCount {
        if self.settled_at.is_some() { self.shards } else { self.shards_before }
    }
}

/// Reason why the number of shards was not changed.
#[derive(Debug, thiserror::Error)]
pub enum SetShardsError {
    #[error("the queue has {0} shard(s) already")]
    Unchanged(u16),
    #[error(
        "the change to {shards} shard(s) (generation {generation}) is still under way: {step}; see: dispatchq shards list"
    )]
    UnderWay { generation: i64, shards: u16, step: &'static str },
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

pub async fn read_latest(db: impl PgExecutor<'_>) -> Result<ShardGeneration, sqlx::Error> {
    sqlx::query_as(
        "-- shards of the queue
         SELECT generation, shards, shards_before, made_at, made_by, reason, derived_at, settled_at
         FROM shard_generations ORDER BY generation DESC LIMIT 1",
    )
    .fetch_one(db)
    .await
}

/// Changes the number of shards and records the action. Refused while the previous change is in progress.
pub async fn set_shards(db: &Pool, count: ShardCount, by: ActionAuthor<'_>) -> Result<ShardGeneration, SetShardsError> {
    let mut tx = db.begin().await?;
    let latest = read_latest(&mut *tx).await?;
    let under_way = |now: &ShardGeneration| SetShardsError::UnderWay {
        generation: now.generation,
        shards: now.shards.get(),
        step: if now.derived_at.is_none() {
            "workers put timers into their new shards"
        } else {
            "jobs remain in surplus shards; wait until they are done, or run: dispatchq shards drain"
        },
    };
    if latest.settled_at.is_none() {
        return Err(under_way(&latest));
    }
    if latest.shards == count {
        return Err(SetShardsError::Unchanged(count.get()));
    }
    let made: Option<ShardGeneration> = sqlx::query_as(
        "-- set shards
         INSERT INTO shard_generations (generation, shards, shards_before, made_by, reason) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT DO NOTHING
         RETURNING generation, shards, shards_before, made_at, made_by, reason, derived_at, settled_at",
    )
    .bind(latest.generation + 1)
    .bind(count.get().cast_signed())
    .bind(latest.shards.get().cast_signed())
    .bind(by.actor.to_string())
    .bind(by.reason)
    .fetch_optional(&mut *tx)
    .await?;
    let Some(made) = made else {
        // Another process has inserted this generation concurrently.
        tx.rollback().await?;
        return Err(under_way(&read_latest(db).await?));
    };
    let subject = format!("generation {}: {} shard(s)", made.generation, count.get());
    let shards = |count: ShardCount| json!({ "shards": count.get() });
    let values = ActionValues::changed(shards(latest.shards), shards(count));
    record_action(&mut tx, by, StaffAction::ShardsSet, &subject, values).await?;
    tx.commit().await?;
    Ok(made)
}

/// Records that the timers of all rows are in their shards of this generation.
pub async fn mark_derived(db: &Pool, generation: i64) -> Result<(), sqlx::Error> {
    sqlx::query(
        "-- shards are derived
         UPDATE shard_generations SET derived_at = dispatchq_now() WHERE generation = $1 AND derived_at IS NULL",
    )
    .bind(generation)
    .execute(db)
    .await
    .map(drop)
}

/// Records that the shards beyond this generation's number are empty, unless some process may not know of the change
/// yet. Returns whether it was recorded.
pub async fn mark_settled(db: &Pool, generation: i64) -> Result<bool, sqlx::Error> {
    let settled = sqlx::query(
        "-- shards are settled
         UPDATE shard_generations SET settled_at = coalesce(settled_at, dispatchq_now())
         WHERE generation = $1 AND derived_at IS NOT NULL
           AND (shards >= shards_before OR made_at < dispatchq_now() - $2 * interval '1 second')",
    )
    .bind(generation)
    .bind(HEARD_WITHIN.as_secs_f64())
    .execute(db)
    .await?;
    Ok(settled.rows_affected() > 0)
}

/// Logs the shards that were skipped because they did not respond. Returns an error if none responded.
pub fn tolerate_failed(shards: &Shards, failed: Vec<(u16, StoreError)>) -> Result<(), StoreError> {
    let (is_all, numbers) = (failed.len() >= shards.stores().len(), failed.iter().map(|(shard, _)| *shard));
    let numbers: Vec<u16> = numbers.collect();
    match failed.into_iter().next() {
        Some((_, error)) if is_all => Err(error),
        Some((_, error)) => {
            tracing::warn!(shards = ?numbers, %error, "Shards do not respond and are skipped; the other shards continue.");
            Ok(())
        }
        None => Ok(()),
    }
}

/// Shards of this process. Cheap to clone; clones are updated together.
#[derive(Debug, Clone)]
pub struct QueueShards {
    current: watch::Sender<Shards>,
    /// Latest generation seen, and whether it was settled.
    seen: Arc<Mutex<(i64, bool)>>,
}

impl QueueShards {
    /// Starts with one shard, which is this store, until Postgres is queried.
    pub fn new(control: &Store) -> Self {
        let shards = Shards::from(control.clone()).with_control_kinds(&CONTROL_KINDS);
        Self { current: watch::Sender::new(shards), seen: Arc::default() }
    }

    pub fn get(&self) -> Shards {
        self.current.borrow().clone()
    }

    /// Returns whether both share the same shards.
    pub fn is_same(&self, other: &Self) -> bool {
        self.current.same_channel(&other.current)
    }

    /// Returns a receiver for the current shards and their changes.
    pub fn subscribe(&self) -> watch::Receiver<Shards> {
        self.current.subscribe()
    }

    /// Reads the latest generation from Postgres and opens its shards without connecting.
    pub async fn reload(&self, db: impl PgExecutor<'_>) -> Result<ShardGeneration, ServiceError> {
        let latest = read_latest(db).await?;
        self.follow(&latest)?;
        Ok(latest)
    }

    fn follow(&self, latest: &ShardGeneration) -> Result<(), ServiceError> {
        let now_seen = (latest.generation, latest.settled_at.is_some());
        let mut seen = self.seen.lock();
        // Two reads may overlap, and the slower one may return an older generation.
        if *seen >= now_seen {
            return Ok(());
        }
        let now = self.get();
        let resized = now.resize(latest.shards, latest.open_before())?;
        *seen = now_seen;
        let (shards, open) = (resized.count(), resized.stores().len());
        if (now.count(), now.stores().len()) != (shards, open) {
            tracing::info!(
                generation = latest.generation,
                shards = shards.get(),
                open,
                "The number of shards was read."
            );
            self.current.send_replace(resized);
        }
        Ok(())
    }

    /// Follows the number of shards until `stop`. While Postgres is unavailable, the last known number applies.
    pub async fn keep_fresh(self, db: Pool, loops: LoopRegistry, stop: CancellationToken) {
        let turns = loops.register_loop("shards");
        let mut failing = false;
        while !stop.is_cancelled() {
            match turns.run_turn(self.reload(&db)).await {
                Some(Ok(_)) => failing = false,
                // Logged once, not twice a second while the failure lasts.
                Some(Err(error)) if !failing => {
                    tracing::warn!(%error, "The number of shards could not be read; the last known number applies.");
                    failing = true;
                }
                Some(Err(_)) | None => failing = true,
            }
            stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await;
        }
    }
}
