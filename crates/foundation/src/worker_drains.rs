//! Workers that an operator drains: such a process takes no more jobs and finishes the running ones.
//!
//! A request is a row with the id of the process, and the process reads it once a second ([`crate::worker_gate`]). So a
//! flush of Redis or a lost heartbeat does not end it. The next process has another id and is not drained. Cleanup
//! removes the rows of processes that have ended.

use std::collections::{BTreeSet, HashMap};

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::json;
use sqlx::FromRow;

use crate::{
    core::Core,
    db::{Connection, Pool},
    error::ServiceError,
    staff_actions::{self, ActionAuthor, ActionValues, StaffAction},
};
use queue::store::WorkerEntry;

/// Request to drain a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, FromRow)]
pub struct WorkerDrain {
    #[serde(skip)]
    pub boot: String,
    pub drained_by: String,
    pub drained_at: DateTime<Utc>,
    /// Reason given by the operator, if any.
    pub reason: Option<String>,
}

impl WorkerDrain {
    /// Returns the time that identifies the request in the worker's heartbeats.
    fn request_ms(&self) -> u64 {
        request_ms(self.drained_at)
    }
}

fn request_ms(drained_at: DateTime<Utc>) -> u64 {
    drained_at.timestamp_millis().cast_unsigned()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DrainState {
    Running,
    /// A drain was requested. The worker has not confirmed it yet, or still runs jobs.
    Draining,
    /// The worker has confirmed the request, runs no job and takes none until it is resumed.
    Drained,
}

impl DrainState {
    fn new(worker: &WorkerEntry, requested_ms: Option<u64>) -> Self {
        match requested_ms {
            None => Self::Running,
            Some(_) if worker.info.drain_ms == requested_ms && worker.info.in_hand == 0 => Self::Drained,
            Some(_) => Self::Draining,
        }
    }
}

/// A live worker process, with the request to drain it if there is one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WorkerStatus {
    #[serde(flatten)]
    pub entry: WorkerEntry,
    pub state: DrainState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<WorkerDrain>,
}

impl WorkerStatus {
    fn new(entry: WorkerEntry, drain: Option<WorkerDrain>) -> Self {
        let requested_ms = drain.as_ref().map(WorkerDrain::request_ms);
        Self { state: DrainState::new(&entry, requested_ms), entry, drain }
    }

    /// Returns the worker, as draining if it has this id.
    fn draining_if(self, boot: &str) -> Self {
        let state = if self.entry.boot == boot { DrainState::Draining } else { self.state };
        Self { state, ..self }
    }

    /// Returns the state that the worker itself reports. Author and time of a drain are unknown.
    fn reported(entry: WorkerEntry) -> Self {
        Self { state: DrainState::new(&entry, entry.info.drain_ms), entry, drain: None }
    }
}

/// Why no worker takes the jobs of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unserved {
    NoWorker,
    /// Workers serve the queue, and all of them are drained.
    Drained,
}

impl Unserved {
    /// Returns why no worker takes the jobs of this queue, or `None` if a worker does.
    pub fn find(workers: &[WorkerEntry], queue: &str) -> Option<Self> {
        // Silent workers count until the list omits them: after a move of the test clock each heartbeat seems old.
        let serves = |worker: &&WorkerEntry| worker.info.queues.iter().any(|served| served == queue);
        let mut serving = workers.iter().filter(serves).peekable();
        if serving.peek().is_none() {
            return Some(Self::NoWorker);
        }
        serving.all(|worker| worker.info.drain_ms.is_some()).then_some(Self::Drained)
    }

    pub fn describe(self, queue: &str) -> String {
        match self {
            Self::NoWorker => format!("no worker serves {queue}"),
            Self::Drained => format!("every worker that serves {queue} is drained"),
        }
    }

    /// Returns the command after which a worker takes the jobs.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::NoWorker => "dispatchq work",
            Self::Drained => "dispatchq worker resume ID",
        }
    }
}

/// Result of a request to drain or resume a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainChange {
    /// `false` if the worker was in this state before.
    pub changed: bool,
    /// The worker after the change. `None` if it sends no heartbeats, or if Redis does not answer after it was resumed.
    pub worker: Option<WorkerStatus>,
    /// Queues of the worker that no other worker takes jobs of. Empty unless it is drained.
    pub unserved_queues: Vec<String>,
}

/// Returns the workers that sent a heartbeat in the last minute, sorted by name. While Postgres does not answer, their
/// states are those of the heartbeats.
pub async fn list_workers(core: &Core) -> Result<Vec<WorkerStatus>, ServiceError> {
    let entries = core.store.list_workers().await?;
    let boots: Vec<&str> = entries.iter().map(|entry| entry.boot.as_str()).collect();
    let drains = match list_drains(&core.db, &boots).await {
        Ok(drains) => drains,
        Err(error) => {
            tracing::warn!(%error, "The requests to drain workers could not be read; heartbeats are shown without them.");
            return Ok(entries.into_iter().map(WorkerStatus::reported).collect());
        }
    };
    let mut drains: HashMap<String, WorkerDrain> =
        drains.into_iter().map(|drain| (drain.boot.clone(), drain)).collect();
    let status = |entry: WorkerEntry| {
        let drain = drains.remove(&entry.boot);
        WorkerStatus::new(entry, drain)
    };
    Ok(entries.into_iter().map(status).collect())
}

async fn list_drains(db: &Pool, boots: &[&str]) -> Result<Vec<WorkerDrain>, sqlx::Error> {
    sqlx::query_as(
        "-- drains of workers
         SELECT boot, drained_by, drained_at, reason FROM worker_drains WHERE boot = ANY ($1)",
    )
    .bind(boots)
    .fetch_all(db)
    .await
}

/// Returns the queues of this worker that no other worker takes jobs of.
pub fn find_unserved<'a>(workers: &'a [WorkerStatus], boot: &str) -> Vec<&'a str> {
    let serving =
        |other: &&WorkerStatus| other.entry.boot != boot && other.state == DrainState::Running && other.entry.is_live();
    let others: BTreeSet<&String> = workers.iter().filter(serving).flat_map(|other| &other.entry.info.queues).collect();
    let own = workers.iter().filter(|worker| worker.entry.boot == boot).flat_map(|worker| &worker.entry.info.queues);
    own.filter(|queue| !others.contains(queue)).map(String::as_str).collect()
}

/// Returns whether a text may be the id of a process.
fn is_id(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// Drains a worker. Returns `None` if no live worker has this id.
pub async fn drain_worker(core: &Core, boot: &str, by: ActionAuthor<'_>) -> Result<Option<DrainChange>, ServiceError> {
    let workers = list_workers(core).await?;
    let is_asked = |worker: &&WorkerStatus| worker.entry.boot == boot && worker.entry.is_live();
    let Some(worker) = workers.iter().find(is_asked) else { return Ok(None) };
    let mut tx = core.db.begin().await?;
    let stored = sqlx::query(
        "-- drain worker
         INSERT INTO worker_drains (boot, replica, drained_by, reason) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
    )
    .bind(boot)
    .bind(&worker.entry.replica)
    .bind(by.actor.to_string())
    .bind(by.reason)
    .execute(&mut *tx)
    .await?;
    let changed = stored.rows_affected() > 0;
    if changed {
        record_change(&mut tx, by, (boot, &worker.entry.replica), true).await?;
    }
    tx.commit().await?;
    let workers = list_workers(core).await.unwrap_or_else(|error| {
        // The change is committed, and the caller must learn that. Only the state of this worker has changed.
        tracing::warn!(%error, "The workers could not be read after a drain.");
        workers.into_iter().map(|worker| worker.draining_if(boot)).collect()
    });
    let unserved_queues = find_unserved(&workers, boot).into_iter().map(str::to_owned).collect();
    let worker = workers.into_iter().find(|worker| worker.entry.boot == boot);
    Ok(Some(DrainChange { changed, worker, unserved_queues }))
}

/// Lets a drained worker take jobs again. Returns `None` if no live or drained worker has this id.
pub async fn resume_worker(core: &Core, boot: &str, by: ActionAuthor<'_>) -> Result<Option<DrainChange>, ServiceError> {
    if !is_id(boot) {
        return Ok(None);
    }
    let mut tx = core.db.begin().await?;
    let replica: Option<String> = sqlx::query_scalar(
        "-- resume worker
         DELETE FROM worker_drains WHERE boot = $1 RETURNING replica",
    )
    .bind(boot)
    .fetch_optional(&mut *tx)
    .await?;
    if let Some(replica) = &replica {
        record_change(&mut tx, by, (boot, replica), false).await?;
    }
    tx.commit().await?;
    let changed = replica.is_some();
    let workers = match list_workers(core).await {
        Err(error) if changed => {
            tracing::warn!(%error, "The workers could not be read after a worker was resumed.");
            Vec::new()
        }
        listed => listed?,
    };
    let worker = workers.into_iter().find(|worker| worker.entry.boot == boot);
    let is_known = changed || worker.is_some();
    Ok(is_known.then_some(DrainChange { changed, worker, unserved_queues: Vec::new() }))
}

async fn record_change(
    tx: &mut Connection,
    by: ActionAuthor<'_>,
    (boot, replica): (&str, &str),
    drained: bool,
) -> Result<(), sqlx::Error> {
    let action = if drained { StaffAction::WorkerDrained } else { StaffAction::WorkerResumed };
    let value = |drained: bool| json!({ "replica": replica, "drained": drained });
    staff_actions::record_action(tx, by, action, boot, ActionValues::changed(value(!drained), value(drained))).await
}

/// Returns the time in ms of the request to drain this process, if one is stored, and marks it as that of a live process.
pub(crate) async fn read_request(db: &Pool, boot: &str) -> Result<Option<u64>, sqlx::Error> {
    let drained_at: Option<DateTime<Utc>> = sqlx::query_scalar(
        "-- drain of this worker
         WITH alive AS (
             UPDATE worker_drains SET alive_at = dispatchq_now()
             WHERE boot = $1 AND alive_at < dispatchq_now() - interval '1 hour'
         )
         SELECT drained_at FROM worker_drains WHERE boot = $1",
    )
    .bind(boot)
    .fetch_optional(db)
    .await?;
    Ok(drained_at.map(request_ms))
}
