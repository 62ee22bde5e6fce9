//! Queues that an operator paused. They are stored in Postgres, so that a flush of Redis does not resume them.
//!
//! A change writes both servers under one Postgres lock. The reconciler, which makes Redis follow Postgres, thus never
//! restores a pause that an operator is ending.

use chrono::{DateTime, Utc};
use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::json;

use crate::{
    core::Core,
    db::{Connection, Pool, Transaction},
    error::ServiceError,
    shard_map::tolerate_failed,
    staff_actions::{self, ActionAuthor, ActionValues, StaffAction},
};
use queue::{Store, StoreError};

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PausedQueue {
    pub queue: String,
    pub paused_by: String,
    pub paused_at: DateTime<Utc>,
    /// Reason given by the operator, if any.
    pub reason: Option<String>,
}

/// Advisory lock id: an arbitrary number, the same in every process.
const LOCK: i64 = 0x6470_7061_7573_6573;

/// Pauses a queue; running jobs finish. Returns false if it was already paused.
pub async fn pause_queue(core: &Core, queue: &str, by: ActionAuthor<'_>) -> Result<bool, ServiceError> {
    let mut tx = begin_locked(&core.db).await?;
    sqlx::query(
        "-- pause queue
         INSERT INTO paused_queues (queue, paused_by, reason) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
    )
    .bind(queue)
    .bind(by.actor.to_string())
    .bind(by.reason)
    .execute(&mut *tx)
    .await?;
    let changed = core.queue().pause_queue(queue).await?;
    if changed {
        staff_actions::record_action(&mut tx, by, StaffAction::QueuePaused, queue, pause_values(true)).await?;
    }
    tx.commit().await?;
    Ok(changed)
}

/// Resumes a queue. Returns false if it was not paused.
pub async fn resume_queue(core: &Core, queue: &str, by: ActionAuthor<'_>) -> Result<bool, ServiceError> {
    let mut tx = begin_locked(&core.db).await?;
    sqlx::query(
        "-- resume queue
         DELETE FROM paused_queues WHERE queue = $1",
    )
    .bind(queue)
    .execute(&mut *tx)
    .await?;
    let changed = core.queue().resume_queue(queue).await?;
    if changed {
        staff_actions::record_action(&mut tx, by, StaffAction::QueueResumed, queue, pause_values(false)).await?;
    }
    tx.commit().await?;
    Ok(changed)
}

fn pause_values(paused: bool) -> ActionValues {
    ActionValues::changed(json!({ "paused": !paused }), json!({ "paused": paused }))
}

/// Makes each shard follow Postgres: pauses the queues that are paused there and resumes all others. A shard that does
/// not respond is skipped until the next call. Returns an error if no shard responds.
pub async fn mirror_pauses(core: &Core) -> Result<(), ServiceError> {
    let mut tx = begin_locked(&core.db).await?;
    let wanted = list_paused(&mut tx).await?;
    let shards = core.queue();
    let mirrored = join_all(shards.stores().iter().map(|store| mirror_to_shard(store, &wanted))).await;
    let failed = shards.stores().iter().zip(mirrored);
    let failed = failed.filter_map(|(store, done)| done.err().map(|error| (store.shard(), error))).collect();
    tolerate_failed(&shards, failed)?;
    Ok(tx.rollback().await?)
}

async fn mirror_to_shard(store: &Store, wanted: &[String]) -> Result<(), StoreError> {
    for stats in store.queue_stats(&jobs::queues::ALL).await? {
        match (stats.paused, wanted.contains(&stats.queue)) {
            (false, true) => store.pause_queue(&stats.queue).await?,
            (true, false) => store.resume_queue(&stats.queue).await?,
            (true, true) | (false, false) => continue,
        };
    }
    Ok(())
}

async fn list_paused(db: &mut Connection) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(
        "-- paused queues
         SELECT queue FROM paused_queues",
    )
    .fetch_all(db)
    .await
}

async fn begin_locked(db: &Pool) -> Result<Transaction<'static>, sqlx::Error> {
    let mut tx = db.begin().await?;
    sqlx::query(
        "-- lock pauses
         SELECT pg_advisory_xact_lock(dispatchq_lock($1::bigint))",
    )
    .bind(LOCK)
    .execute(&mut *tx)
    .await?;
    Ok(tx)
}
