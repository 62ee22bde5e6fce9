//! A rebuild: the application restores all jobs in Redis and marks them as complete.
//!
//! It sets a marker first. It then inserts jobs by due time and publishes a horizon next to the marker; workers take
//! jobs due up to the horizon. It writes the epoch last.
//!
//! A flush removes the marker and the horizon. The jobs inserted before no longer count, and each later call of that
//! rebuild reports this. The same happens when another rebuild starts.

use rand::RngExt;

use super::{
    bounds::BATCH,
    client::{QueueNumbers, Store, encode_envelope},
    enqueue::{REPAIR_TOLERANCE_MS, RepairVerdict, read_repair_codes},
    error::StoreError,
    script::{FINISH_REBUILD, PUBLISH_HORIZON, REBUILD},
};
use crate::job::NewJob;

/// Marker of a rebuild in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RebuildMarker(String);

/// Job that a rebuild inserts.
#[derive(Debug, Clone, PartialEq)]
pub struct DueJob {
    /// Its delay is ignored.
    pub job: NewJob,
    /// Due time in ms, by Redis' clock.
    pub due_ms: u64,
}

/// Time without progress after which a rebuild has failed.
const MARKER_SECS: u64 = 3600;

impl Store {
    /// Starts a rebuild. Only the latest one can finish, and only its horizon counts.
    pub async fn begin_rebuild(&self) -> Result<RebuildMarker, StoreError> {
        let marker = random_id();
        let mut set = redis::cmd("SET");
        set.arg(self.keys.rebuild_marker()).arg(&marker).arg("EX").arg(MARKER_SECS);
        let _: () = self.run_query("begin_rebuild", &set).await?;
        Ok(RebuildMarker(marker))
    }

    /// Restores jobs as [`repair`](Self::repair) does. Returns one verdict per job, in their order. `None` means that
    /// the marker no longer exists: rebuild again.
    ///
    /// The call accepts any number of jobs and sends them in batches of 500, each batch atomic. A repeated call is
    /// harmless.
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

    /// Publishes that all jobs due up to this time, in ms of Redis' clock, are inserted. Workers take them after this
    /// call. `false` means that the marker no longer exists: rebuild again.
    pub async fn publish_horizon(&self, marker: &RebuildMarker, horizon_ms: u64) -> Result<bool, StoreError> {
        let mut call = PUBLISH_HORIZON.with_keys(&[self.keys.rebuild_marker()]);
        call.push_arg(&marker.0).push_arg(horizon_ms).push_arg(MARKER_SECS);
        self.run_idempotent(&call).await
    }

    /// Writes the epoch. `false` means that Redis was flushed since the start of the rebuild, or that another one
    /// started: rebuild again.
    ///
    /// `run_id` is the server's as read *before* the rebuild.
    pub async fn finish_rebuild(&self, marker: &RebuildMarker, run_id: &str) -> Result<bool, StoreError> {
        let mut call = FINISH_REBUILD.with_keys(&[self.keys.rebuild_marker(), self.keys.epoch()]);
        call.push_arg(&marker.0).push_arg(format!("{run_id} {}", random_id()));
        let is_written: bool = self.run_script(&call).await?;
        if is_written && let Err(error) = self.hand_out_slots().await {
            // The next take hands them out, too.
            tracing::debug!(%error, "Cannot hand out slots yet; the next take does it.");
        }
        Ok(is_written)
    }
}

/// Returns 128 random bits as text.
fn random_id() -> String {
    format!("{:032x}", rand::rng().random::<u128>())
}
