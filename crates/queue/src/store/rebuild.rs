//! A rebuild: the owner of the truth puts back all jobs, and says so.
//!
//! A marker is set at its start. Jobs go in by due time, and the horizon beside the marker says how far they are in: so far workers
//! take them. The epoch is written last. A flush takes the marker along, and with it the horizon: what was put in before counts no
//! more, and each call of that rebuild answers so. So does a rebuild that another began; the horizon of the earlier one is gone then.

use rand::RngExt;

use super::{
    bounds::BATCH,
    client::{QueueNumbers, Store, encode_envelope},
    enqueue::{REPAIR_TOLERANCE_MS, RepairVerdict, read_repair_codes},
    error::StoreError,
    script::{FINISH_REBUILD, PUBLISH_HORIZON, REBUILD},
};
use crate::job::NewJob;

/// A rebuild under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RebuildMarker(String);

/// A job of a rebuild.
#[derive(Debug, Clone, PartialEq)]
pub struct DueJob {
    /// Its delay does not matter.
    pub job: NewJob,
    /// By Redis' clock.
    pub due_ms: u64,
}

/// A rebuild that gets no further within this time has failed.
const MARKER_SECS: u64 = 3600;

impl Store {
    /// Begins a rebuild. The latest begun is the only one that can finish, and its horizon the only one that counts.
    pub async fn begin_rebuild(&self) -> Result<RebuildMarker, StoreError> {
        let marker = random_id();
        let mut set = redis::cmd("SET");
        set.arg(self.keys.rebuild_marker()).arg(&marker).arg("EX").arg(MARKER_SECS);
        let _: () = self.run_query("begin_rebuild", &set).await?;
        Ok(RebuildMarker(marker))
    }

    /// Puts jobs back as [`repair`](Self::repair) does. Answers one verdict per job, in their order; `None`: the marker no longer stands,
    /// rebuild again.
    ///
    /// Any number of jobs; they go in batches of 500, each batch atomic. Doing it twice is harmless.
    pub async fn rebuild_jobs(
        &self,
        marker: &RebuildMarker,
        jobs: &[DueJob],
    ) -> Result<Option<Vec<RepairVerdict>>, StoreError> {
        let mut verdicts = Vec::with_capacity(jobs.len());
        for batch in jobs.chunks(BATCH) {
            let mut queues = QueueNumbers::default();
            let numbers: Vec<usize> = batch.iter().map(|due| queues.number_of(due.job.queue)).collect();
            let mut call = self.job_script(&REBUILD, queues.names());
            call.push_arg(REPAIR_TOLERANCE_MS).push_arg(&marker.0);
            for (DueJob { job, due_ms }, number) in batch.iter().zip(numbers) {
                call.push_arg(number).push_arg(job.id.as_str()).push_arg(*due_ms).push_arg(encode_envelope(job));
            }
            let codes: Vec<u8> = self.run_idempotent(&call).await?;
            if codes.is_empty() {
                return Ok(None);
            }
            verdicts.extend(read_repair_codes(&REBUILD, batch.len(), codes)?);
        }
        Ok(Some(verdicts))
    }

    /// Says that each job due up to this time, in ms of Redis' clock, is in: workers take them from now on. `false`: the marker no
    /// longer stands, rebuild again.
    pub async fn publish_horizon(&self, marker: &RebuildMarker, horizon_ms: u64) -> Result<bool, StoreError> {
        let mut call = PUBLISH_HORIZON.with_keys(&[self.keys.rebuild_marker()]);
        call.push_arg(&marker.0).push_arg(horizon_ms).push_arg(MARKER_SECS);
        self.run_idempotent(&call).await
    }

    /// Writes the epoch. `false`: something was flushed since the rebuild began, or another began; rebuild again.
    ///
    /// `run_id` is the server's as read *before* the rebuild.
    pub async fn finish_rebuild(&self, marker: &RebuildMarker, run_id: &str) -> Result<bool, StoreError> {
        let mut call = FINISH_REBUILD.with_keys(&[self.keys.rebuild_marker(), self.keys.epoch()]);
        call.push_arg(&marker.0).push_arg(format!("{run_id} {}", random_id()));
        let is_written: bool = self.run_script(&call).await?;
        if is_written && let Err(error) = self.hand_out_slots().await {
            // The next take does it, too.
            tracing::debug!(%error, "Slots are not handed out yet.");
        }
        Ok(is_written)
    }
}

/// 128 random bits as text.
fn random_id() -> String {
    format!("{:032x}", rand::rng().random::<u128>())
}
