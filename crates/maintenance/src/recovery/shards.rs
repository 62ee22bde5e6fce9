//! State of each shard: its counts, whether it must be rebuilt, and the end of a change of the number of shards.
//!
//! The reconciler queries all shards concurrently. A shard that does not respond is left out of this turn; the others
//! are repaired.

use std::time::Duration;

use futures_util::future::join_all;
use jobs::{Job, SendAlarm};
use serde::Serialize;

use foundation::{
    core::Core,
    crash,
    error::ServiceError,
    loops::report_progress,
    shard_map::{self, SetShardsError, ShardGeneration},
    staff_actions::ActionAuthor,
    work_slice::WorkSlice,
};
use queue::{
    JobAddress, JobId, NewJob, ShardCount, Shards, Store, StoreError,
    store::{DeadEntry, DeadFilter, JobState, RestoreVerdict},
};

/// Timeout for the counts shown to people and in metrics, so that they do not wait for a single shard.
const STANDING_TIMEOUT: Duration = Duration::from_secs(2);
/// Jobs moved at a time.
const PAGE: usize = 1_000;
/// Maximum time of a drain. It waits for running jobs, and until every process has read the change.
const DRAIN_TIME: Duration = Duration::from_secs(30);
const DRAIN_PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShardStanding {
    pub shard: u16,
    /// Number of due jobs. Like the other counts, it is `None` if the shard did not respond.
    pub due: Option<u64>,
    pub scheduled: Option<u64>,
    pub leased: Option<u64>,
    pub parked: Option<u64>,
    pub dead: Option<u64>,
    /// Whether the shard has our data, or is getting it.
    pub epoch: bool,
    /// Whether the shard is beyond the number of shards and receives no new jobs.
    pub left_over: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Returns the state of each open shard.
pub async fn list_standings(core: &Core) -> Vec<ShardStanding> {
    let shards = core.queue();
    join_all(shards.stores().iter().map(|store| read_standing(&shards, store))).await
}

async fn read_standing(shards: &Shards, store: &Store) -> ShardStanding {
    let asked = async { Ok::<_, StoreError>((store.queue_stats(&jobs::queues::ALL).await?, store.epoch().await?)) };
    let (asked, error) = match tokio::time::timeout(STANDING_TIMEOUT, asked).await {
        Ok(Ok(asked)) => (Some(asked), None),
        Ok(Err(error)) => (None, Some(error.to_string())),
        Err(_) => (None, Some(format!("no response within {} s", STANDING_TIMEOUT.as_secs()))),
    };
    let sum = |pick: fn(&queue::store::QueueStats) -> u64| {
        asked.as_ref().map(|(stats, _)| stats.iter().map(pick).sum::<u64>())
    };
    ShardStanding {
        shard: store.shard(),
        due: sum(|queue| queue.due),
        scheduled: sum(|queue| queue.scheduled),
        leased: sum(|queue| queue.leased),
        parked: sum(|queue| queue.parked),
        dead: sum(|queue| queue.dead),
        epoch: asked.as_ref().is_some_and(|(_, epoch)| epoch.is_some()),
        left_over: store.shard() >= shards.count().get(),
        error,
    }
}

/// Changes the number of shards. New shards are opened first, so that jobs in them do not wait for the reconciler. If
/// the process dies in between, the new shards are open and empty, which is harmless.
pub async fn change_number(
    core: &Core,
    count: ShardCount,
    by: ActionAuthor<'_>,
) -> Result<ShardGeneration, SetShardsError> {
    let latest = shard_map::read_latest(&core.db).await?;
    if latest.settled_at.is_some() {
        let shards = core.queue().resize(count, latest.shards)?;
        for store in shards.homes().iter().skip(usize::from(latest.shards.get())) {
            if has_lost_data(store).await? {
                open_empty(std::slice::from_ref(store)).await?;
            }
        }
    }
    crash::reach_point("shards", "opened");
    shard_map::set_shards(&core.db, count, by).await
}

/// Result of a check of all shards.
#[derive(Debug)]
pub(super) struct ShardLook {
    /// Shards that have lost their data, or the last second of it by a restart.
    pub(super) lost: Vec<Store>,
    /// Shards without our data that need none yet: their jobs are inserted by the change in progress, or not at all.
    pub(super) empty: Vec<Store>,
    /// Shards that did not respond.
    pub(super) failed: Vec<(u16, StoreError)>,
}

impl ShardLook {
    /// Checks whether each shard has our data.
    pub(super) async fn begin(shards: &Shards, generation: &ShardGeneration) -> Self {
        let mut look = Self { lost: Vec::new(), empty: Vec::new(), failed: Vec::new() };
        // The jobs of a shard that is new in this generation are in the shards of the previous generation until they
        // are derived.
        let homes = if generation.derived_at.is_some() {
            generation.shards.get()
        } else {
            generation.shards.get().min(generation.shards_before.get())
        };
        let answers = join_all(shards.stores().iter().map(has_lost_data)).await;
        for (store, answer) in shards.stores().iter().zip(answers) {
            match answer {
                Ok(false) => {}
                Ok(true) if store.shard() < homes => look.lost.push(store.clone()),
                Ok(true) => look.empty.push(store.clone()),
                Err(error) => look.failed.push((store.shard(), error)),
            }
        }
        look
    }
}

/// Returns whether a shard has lost its data, or the last second of it by a restart.
pub(super) async fn has_lost_data(store: &Store) -> Result<bool, StoreError> {
    let run_id = store.run_id().await?;
    Ok(store.epoch().await?.is_none_or(|epoch| epoch.run_id != run_id))
}

/// Opens these shards to workers before their jobs are inserted. The shards lack nothing else.
pub(super) async fn open_empty(stores: &[Store]) -> Result<(), StoreError> {
    for store in stores {
        let run_id = store.run_id().await?;
        let marker = store.begin_rebuild().await?;
        store.finish_rebuild(&marker, &run_id).await?;
    }
    Ok(())
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DrainReport {
    /// Jobs moved to their present shard.
    pub moved: u64,
    /// Dead letters moved.
    pub dead: u64,
    /// Jobs that remain in shards beyond the number of shards.
    pub left: u64,
    pub is_settled: bool,
}

/// Moves the waiting jobs of shards beyond the number of shards to their present shards. Records the end of the change
/// when the old shards are empty. A job is inserted in the new shard before it is removed from the old one, so a
/// repetition or a crash is harmless.
pub async fn drain_left_over(core: &Core, generation: &ShardGeneration) -> Result<DrainReport, ServiceError> {
    drain_slice(core, generation, WorkSlice::lasting(DRAIN_TIME)).await
}

/// Same as [`drain_left_over`], for the time of a slice.
pub async fn drain_slice(
    core: &Core,
    generation: &ShardGeneration,
    slice: WorkSlice,
) -> Result<DrainReport, ServiceError> {
    let mut report = DrainReport::default();
    loop {
        let shards = core.queue();
        for store in shards.left_over() {
            report.moved += move_waiting(&shards, store, slice).await?;
            report.dead += move_dead(&shards, store, slice).await?;
        }
        (report.is_settled, report.left) = settle_change(core, generation).await?;
        if report.is_settled || slice.is_over() {
            return Ok(report);
        }
        tokio::time::sleep(DRAIN_PAUSE).await;
    }
}

/// Moves dead letters, which stay in a shard unless they are moved, and records the end of the change when nothing is
/// left.
pub(super) async fn end_change(core: &Core, generation: &ShardGeneration) -> Result<(), ServiceError> {
    let shards = core.queue();
    for store in shards.left_over() {
        move_dead(&shards, store, WorkSlice::WHOLE).await?;
    }
    settle_change(core, generation).await?;
    Ok(())
}

/// Records the end of a change with derived timers when nothing is left beyond the number of shards. Returns whether it
/// has ended, and how many jobs are left.
async fn settle_change(core: &Core, generation: &ShardGeneration) -> Result<(bool, u64), ServiceError> {
    let left = core.queue().count_left_over(&jobs::queues::ALL).await?;
    let is_settled = left == 0 && shard_map::mark_settled(&core.db, generation.generation).await?;
    if is_settled {
        core.shards.reload(&core.db).await?;
    }
    Ok((is_settled, left))
}

/// Moves the waiting jobs of one shard. Jobs with a payload are not moved; they become due at once in their old shard.
async fn move_waiting(shards: &Shards, from: &Store, slice: WorkSlice) -> Result<u64, StoreError> {
    let mut moved = 0;
    for queue in jobs::queues::ALL {
        loop {
            let page = from.list_jobs(queue, JobState::Due, 0, PAGE).await?;
            let now_ms = from.now_ms().await?;
            let (mut jobs, mut here) = (Vec::new(), Vec::new());
            for entry in &page {
                let Ok(id) = JobId::parse(entry.id.clone()) else { continue };
                if id.kind() == SendAlarm::KIND {
                    from.reschedule(&id, &[queue], Duration::ZERO).await?;
                    continue;
                }
                let delay = Duration::from_millis(entry.at_ms.saturating_sub(now_ms));
                here.push(JobAddress { queue, id: id.clone() });
                jobs.push(NewJob { queue, id, delay, payload: None, slots: None });
            }
            if jobs.is_empty() {
                break;
            }
            shards.enqueue(&jobs).await?;
            crash::reach_point("shards", "moved");
            from.enqueue_superseding(&[], &here).await?;
            moved += jobs.len() as u64;
            report_progress();
            if slice.is_over() {
                return Ok(moved);
            }
            if page.len() < PAGE {
                break;
            }
        }
    }
    Ok(moved)
}

/// Moves the dead letters of one shard to their present shards.
async fn move_dead(shards: &Shards, from: &Store, slice: WorkSlice) -> Result<u64, StoreError> {
    let mut moved = 0;
    for queue in jobs::queues::ALL {
        let mut cursor = None;
        loop {
            let page = from.list_dead(queue, &DeadFilter::default(), cursor.as_ref()).await?;
            let is_elsewhere =
                |entry: &DeadEntry| JobId::parse(entry.id.clone()).is_ok_and(|id| shards.shard_of(&id) != from.shard());
            let astray: Vec<DeadEntry> = page.entries.into_iter().filter(is_elsewhere).collect();
            if !astray.is_empty() {
                let verdicts = shards.restore_dead(queue, &astray).await?;
                // If the job is live in that shard, its row has requested it again in the meantime.
                let ids: Vec<&str> = astray.iter().map(|entry| entry.id.as_str()).collect();
                from.discard(&ids, &[queue]).await?;
                moved += verdicts.iter().filter(|verdict| **verdict == RestoreVerdict::Restored).count() as u64;
            }
            report_progress();
            if !astray.is_empty() && slice.is_over() {
                return Ok(moved);
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
    }
    Ok(moved)
}

/// Moves each dead letter to its present shard, so that no timer is inserted next to it.
pub(super) async fn move_all_dead(core: &Core) -> Result<(), StoreError> {
    let shards = core.queue();
    for store in shards.stores() {
        move_dead(&shards, store, WorkSlice::WHOLE).await?;
    }
    Ok(())
}

/// Logs a failure of Redis and continues, if there are several shards. Work that needs the control shard waits; the
/// other shards do not.
pub(super) fn tolerate_control(core: &Core, done: Result<(), ServiceError>) -> Result<(), ServiceError> {
    match done {
        Err(ServiceError::Queue(error)) if core.queue().stores().len() > 1 => {
            tracing::warn!(%error, "The control shard could not be repaired; the other shards continue.");
            Ok(())
        }
        done => done,
    }
}
