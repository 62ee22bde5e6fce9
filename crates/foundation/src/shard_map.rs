//! How many shards the queue has: rows of Postgres that every process follows.
//!
//! Each change is a row more, whose generation is one higher; the highest holds. Every process asks for it twice a second. Workers then
//! take from the shards of both numbers, and all that places a job goes by the new one. A change has three steps: it is made; its timers are
//! derived, once the reconciler has put those of all rows into their new shards; it is settled, once nothing is left in shards beyond
//! the number there is. Until then no other change is made.
//!
//! A process that has not heard of a change yet places jobs by the number before, in shards that are still open. One that hears of it only
//! after those are closed loses nothing either: such a timer is overdue one day, and the reconciler puts it back.

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

/// Kinds that lie in the control shard: one script hands their slots over, or all processes look for them there.
const CONTROL_KINDS: [&str; 4] = [RunCycle::KIND, SubmitOtp::KIND, SettleTransaction::KIND, PeriodicTick::KIND];
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Shards that are no longer wanted stay open for so long at least: by then every process has heard of the change.
const HEARD_WITHIN: Duration = Duration::from_secs(5);

/// One number of shards, since when it holds, and how far the change to it is.
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
    /// Returns the number before, whose shards are open, too; the same number once the change is settled.
    fn open_before(&self) -> ShardCount {
        if self.settled_at.is_some() { self.shards } else { self.shards_before }
    }
}

/// Why the number of shards was left as it is.
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

/// Reads the generation that holds.
pub async fn read_latest(db: impl PgExecutor<'_>) -> Result<ShardGeneration, sqlx::Error> {
    sqlx::query_as(
        "-- shards of the queue
         SELECT generation, shards, shards_before, made_at, made_by, reason, derived_at, settled_at
         FROM shard_generations ORDER BY generation DESC LIMIT 1",
    )
    .fetch_one(db)
    .await
}

/// Makes another number of shards hold, with its record. Refused while the change before is under way.
pub async fn set_shards(db: &Pool, count: ShardCount, by: ActionAuthor<'_>) -> Result<ShardGeneration, SetShardsError> {
    let mut tx = db.begin().await?;
    let latest = read_latest(&mut *tx).await?;
    let under_way = |now: &ShardGeneration| SetShardsError::UnderWay {
        generation: now.generation,
        shards: now.shards.get(),
        step: if now.derived_at.is_none() {
            "workers put timers into their new shards"
        } else {
            "jobs are left in shards beyond it, which end by themselves, or with: dispatchq shards drain"
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
        // Another has just made one.
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

/// Records that the timers of all rows lie in their shards of this generation.
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

/// Records that nothing is left in shards beyond this generation's number, once every process has had the time to hear of it. Returns whether
/// that is recorded.
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

/// Says which shards were left out of some work because they did not answer. Fails where none did.
pub fn tolerate_failed(shards: &Shards, failed: Vec<(u16, StoreError)>) -> Result<(), StoreError> {
    let (is_all, numbers) = (failed.len() >= shards.stores().len(), failed.iter().map(|(shard, _)| *shard));
    let numbers: Vec<u16> = numbers.collect();
    match failed.into_iter().next() {
        Some((_, error)) if is_all => Err(error),
        Some((_, error)) => {
            tracing::warn!(shards = ?numbers, %error, "Shards do not answer and are left out; the others go on.");
            Ok(())
        }
        None => Ok(()),
    }
}

/// The shards of this process. Cheap to clone; clones follow together.
#[derive(Debug, Clone)]
pub struct QueueShards {
    current: watch::Sender<Shards>,
    /// The latest generation seen, and whether it was settled.
    seen: Arc<Mutex<(i64, bool)>>,
}

impl QueueShards {
    /// One shard, which is this store, until Postgres was asked.
    pub fn new(control: &Store) -> Self {
        let shards = Shards::from(control.clone()).with_control_kinds(&CONTROL_KINDS);
        Self { current: watch::Sender::new(shards), seen: Arc::default() }
    }

    pub fn get(&self) -> Shards {
        self.current.borrow().clone()
    }

    /// Returns whether both follow the same shards.
    pub fn is_same(&self, other: &Self) -> bool {
        self.current.same_channel(&other.current)
    }

    /// The shards from now on.
    pub fn subscribe(&self) -> watch::Receiver<Shards> {
        self.current.subscribe()
    }

    /// Asks Postgres which generation holds, and opens its shards without connecting.
    pub async fn reload(&self, db: impl PgExecutor<'_>) -> Result<ShardGeneration, ServiceError> {
        let latest = read_latest(db).await?;
        self.follow(&latest)?;
        Ok(latest)
    }

    fn follow(&self, latest: &ShardGeneration) -> Result<(), ServiceError> {
        let now_seen = (latest.generation, latest.settled_at.is_some());
        let mut seen = self.seen.lock();
        // Two look at a time, and one that was slow says what was before.
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

    /// Follows the number of shards until told to stop. While Postgres is away it stays as it was.
    pub async fn keep_fresh(self, db: Pool, loops: LoopRegistry, stop: CancellationToken) {
        let turns = loops.register_loop("shards");
        let mut failing = false;
        while !stop.is_cancelled() {
            match turns.run_turn(self.reload(&db)).await {
                Some(Ok(_)) => failing = false,
                // Said once, and not twice a second for as long as it lasts.
                Some(Err(error)) if !failing => {
                    tracing::warn!(%error, "The number of shards stays as it was.");
                    failing = true;
                }
                Some(Err(_)) | None => failing = true,
            }
            stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await;
        }
    }
}
