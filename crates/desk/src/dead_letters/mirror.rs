//! Keeps the copy of the dead letters in Postgres up to date, and restores dead letters that Redis has lost.
//!
//! This loop is separate from the reconciler, so that a problem here does not delay timers. One replica at a time runs
//! it, every few seconds, for a bounded number of pages. Its position is stored for each queue of each shard, together
//! with the shard's epoch. A new epoch means that the shard was rebuilt: the loop first restores the open dead letters
//! and then compares all. Each shard uses its own clock. A shard that does not respond does not keep the others from
//! being copied. Dead letters are restored after the timers: a job that its row has requested again is live and no
//! longer a dead letter.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use metrics::counter;
use serde::Serialize;
use sqlx::FromRow;
use tokio_util::sync::CancellationToken;

use foundation::{
    core::Core,
    db::{self, lock},
    dead_letter_rows::{self, Resolution},
    error::ServiceError,
    loops::report_progress,
    shard_map::tolerate_failed,
};
use queue::{
    JobId, Shards, Store,
    store::{DeadCursor, DeadEntry, DeadFilter, RestoreVerdict},
};

const INTERVAL: Duration = Duration::from_secs(5);
/// Maximum pages of 500 that one turn copies per shard.
const PAGES: usize = 20;
const RESTORE_PAGE: usize = 500;
/// Minimum age of a dead letter before it is copied. A newer one could still appear before the position that the copy
/// has reached.
const SETTLED: Duration = Duration::from_secs(1);
/// Interval of a complete comparison. It corrects the copy after a clock jump or an incomplete decision.
const PASS: TimeDelta = TimeDelta::hours(1);
/// Lock key. The number is arbitrary, the same in every replica, and different from the reconciler's.
const LOCK: i64 = 0x6470_6465_6164_6c74;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MirrorTurn {
    /// Dead letters restored in Redis.
    pub restored: u64,
    /// Dead letters that were closed because their job is live.
    pub revived: u64,
    /// Dead letters read from Redis, new or known.
    pub read: u64,
    /// Whether pages are left for the next turn.
    pub more: bool,
}

/// Runs until `stop` is cancelled.
pub async fn run(core: Core, stop: CancellationToken) {
    let turns = core.loops.register_loop("mirror of dead letters");
    while !stop.is_cancelled() {
        let pause = match turns.run_turn(mirror_once(&core)).await {
            Some(Ok(Some(MirrorTurn { more: true, .. }))) => Duration::ZERO,
            Some(Ok(_)) | None => INTERVAL,
            Some(Err(error)) => {
                tracing::warn!(%error, "The dead letters could not be copied; the next turn copies them.");
                INTERVAL
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Runs one turn. Returns `None` if another replica is running one.
pub async fn mirror_once(core: &Core) -> Result<Option<MirrorTurn>, ServiceError> {
    lock::run_under_lock(&core.upkeep, LOCK, mirror_queues(core)).await
}

async fn mirror_queues(core: &Core) -> Result<MirrorTurn, ServiceError> {
    let (shards, mut turn) = (core.queue(), MirrorTurn::default());
    let mut failed = Vec::new();
    for store in shards.stores() {
        let mut pages = PAGES;
        match (ShardMirror { core, shards: &shards, store }).copy_queues(&mut pages, &mut turn).await {
            Ok(()) => {}
            Err(ServiceError::Queue(error)) => failed.push((store.shard(), error)),
            Err(error) => return Err(error),
        }
        report_progress();
    }
    tolerate_failed(&shards, failed)?;
    if turn.restored > 0 {
        counter!("dispatchq_dead_letters_restored_total").increment(turn.restored);
        tracing::info!(restored = turn.restored, "Dead letters that Redis had lost were restored.");
    }
    Ok(turn)
}

struct ShardMirror<'a> {
    core: &'a Core,
    shards: &'a Shards,
    store: &'a Store,
}

impl ShardMirror<'_> {
    async fn copy_queues(&self, pages: &mut usize, turn: &mut MirrorTurn) -> Result<(), ServiceError> {
        // The shard has lost everything. Its timers are restored first, and the epoch with them.
        let Some(epoch) = self.store.epoch().await? else { return Ok(()) };
        for queue in jobs::queues::ALL {
            let now = db::database_now(&self.core.db).await?;
            let name = self.place_name(queue);
            let mut place = match load_place(self.core, &name).await? {
                Some(place) if place.epoch == epoch.id => place,
                _ => {
                    self.restore_lost(queue, turn).await?;
                    MirrorPlace { epoch: epoch.id.clone(), cursor: None, begun_at: now }
                }
            };
            let at_end = self.copy_pages(queue, &mut place, pages, turn).await?;
            if at_end && now - place.begun_at > PASS {
                place = MirrorPlace { cursor: None, begun_at: now, ..place };
            }
            turn.more |= !at_end;
            save_place(self.core, &name, &place).await?;
        }
        Ok(())
    }

    /// Returns the key of a queue's stored position. The first shard keeps the key from before there were shards.
    fn place_name(&self, queue: &str) -> String {
        match self.store.shard() {
            0 => queue.to_owned(),
            shard => format!("{queue}/{shard}"),
        }
    }

    /// Restores the open dead letters of a queue that belong to this shard and are missing.
    async fn restore_lost(&self, queue: &str, turn: &mut MirrorTurn) -> Result<(), ServiceError> {
        let db = &self.core.db;
        let mut page = dead_letter_rows::list_open(db, queue, None, RESTORE_PAGE).await?;
        while let Some(last) = page.last().cloned() {
            let entries = page.into_iter().map(DeadEntry::from).filter(|entry| self.belongs_here(entry));
            let entries: Vec<DeadEntry> = entries.collect();
            let verdicts = self.store.restore_dead(queue, &entries).await?;
            let mut living = Vec::new();
            for (entry, verdict) in entries.into_iter().zip(verdicts) {
                match verdict {
                    RestoreVerdict::Restored => turn.restored += 1,
                    RestoreVerdict::Lives => living.push(entry.id),
                    RestoreVerdict::Dead => {}
                }
            }
            turn.revived += living.len() as u64;
            let why = Resolution::revived("its row asked for it again");
            dead_letter_rows::resolve_jobs(db, &living, &why).await?;
            page = dead_letter_rows::list_open(db, queue, Some(&last), RESTORE_PAGE).await?;
            report_progress();
        }
        Ok(())
    }

    /// Returns whether the dead letter belongs to this shard. One with an unreadable id belongs to the control shard.
    fn belongs_here(&self, entry: &DeadEntry) -> bool {
        JobId::parse(entry.id.clone()).map_or(0, |id| self.shards.shard_of(&id)) == self.store.shard()
    }

    /// Copies pages from the stored position on. Returns whether the end was reached.
    async fn copy_pages(
        &self,
        queue: &str,
        place: &mut MirrorPlace,
        pages: &mut usize,
        turn: &mut MirrorTurn,
    ) -> Result<bool, ServiceError> {
        let settled = DeadFilter { older_than: SETTLED, ..DeadFilter::default() };
        let cursor = place.cursor.as_deref().map(str::parse::<DeadCursor>).transpose();
        let mut cursor = cursor.map_err(|error| ServiceError::Incomplete(error.to_string()))?;
        while *pages > 0 {
            *pages -= 1;
            let page = self.store.list_dead(queue, &settled, cursor.as_ref()).await?;
            report_progress();
            if let Some(last) = page.entries.last() {
                dead_letter_rows::copy_dead_jobs(&self.core.db, queue, &page.entries).await?;
                turn.read += page.entries.len() as u64;
                cursor = Some(last.cursor());
                place.cursor = cursor.as_ref().map(ToString::to_string);
            }
            if page.next.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Position of the copy of a queue.
#[derive(Debug, Clone, PartialEq, FromRow)]
struct MirrorPlace {
    epoch: String,
    cursor: Option<String>,
    begun_at: DateTime<Utc>,
}

async fn load_place(core: &Core, queue: &str) -> Result<Option<MirrorPlace>, sqlx::Error> {
    sqlx::query_as(
        "-- place of the mirror
         SELECT epoch, cursor, begun_at FROM dead_letter_mirror WHERE queue = $1",
    )
    .bind(queue)
    .fetch_optional(&core.db)
    .await
}

async fn save_place(core: &Core, queue: &str, place: &MirrorPlace) -> Result<(), sqlx::Error> {
    sqlx::query(
        "-- keep place of the mirror
         INSERT INTO dead_letter_mirror AS m (queue, epoch, cursor, begun_at) VALUES ($1, $2, $3, $4)
         ON CONFLICT (queue) DO UPDATE SET epoch = $2, cursor = $3, begun_at = $4
             WHERE (m.epoch, m.cursor, m.begun_at) IS DISTINCT FROM ($2, $3, $4)",
    )
    .bind(queue)
    .bind(&place.epoch)
    .bind(&place.cursor)
    .bind(place.begun_at)
    .execute(&core.db)
    .await?;
    Ok(())
}
