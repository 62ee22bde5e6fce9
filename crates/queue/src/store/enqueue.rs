//! Inserting jobs and cancelling the jobs that they supersede.

use super::{
    bounds::BATCH,
    client::{QueueNumbers, Store, push_job},
    error::StoreError,
    script::{COMPARE, ENQUEUE, NamedScript, REPAIR, ScriptCall},
};
use crate::job::{JobAddress, NewJob};

/// Delay above which `repair` moves a job earlier although a snooze, a backoff or an operator delayed it. Snoozes and
/// backoffs are shorter than this.
pub(super) const REPAIR_TOLERANCE_MS: u64 = 60_000;

/// Result of enqueueing one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnqueueVerdict {
    /// The job was absent.
    Inserted,
    /// The job was due later and is due earlier now. It keeps the payload of the earlier insert.
    Moved,
    /// The job is due earlier already.
    Kept,
    /// The job is running. It runs again, at the earliest due time requested during the run.
    Again,
    /// The job is dead and stays so until an operator decides.
    Dead,
}

/// Result of repairing one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairVerdict {
    /// The job was absent.
    Inserted,
    /// The job was due later than its row wants: its enqueue was lost, or it was delayed by more than 60 s.
    Moved,
    /// The job is leased, parked or due in time.
    Fine,
    /// The job is dead and stays so until an operator decides.
    Dead,
}

impl Store {
    /// Inserts jobs, each due after its delay. Returns one verdict per job, in their order.
    ///
    /// The call accepts any number of jobs and sends them in batches of 500, each batch atomic. Enqueueing twice is
    /// harmless, so a caller may repeat a failed call.
    pub async fn enqueue(&self, jobs: &[NewJob]) -> Result<Vec<EnqueueVerdict>, StoreError> {
        self.enqueue_superseding(jobs, &[]).await
    }

    /// Inserts jobs as [`enqueue`](Self::enqueue) does. Before that, the same call cancels the superseded jobs that are
    /// due. A superseded job that is leased, parked or dead is not changed.
    ///
    /// Use this only for jobs that are never wanted again: a cancel may take effect late or never.
    pub async fn enqueue_superseding(
        &self,
        jobs: &[NewJob],
        superseded: &[JobAddress],
    ) -> Result<Vec<EnqueueVerdict>, StoreError> {
        let mut verdicts = Vec::with_capacity(jobs.len());
        let (mut jobs, mut superseded) = (jobs, superseded);
        while !jobs.is_empty() || !superseded.is_empty() {
            let (ending, ending_later) = superseded.split_at(superseded.len().min(BATCH));
            let (batch, later) = jobs.split_at(jobs.len().min(BATCH - ending.len()));
            verdicts.extend(self.enqueue_batch(batch, ending).await?);
            (jobs, superseded) = (later, ending_later);
        }
        Ok(verdicts)
    }

    async fn enqueue_batch(
        &self,
        jobs: &[NewJob],
        superseded: &[JobAddress],
    ) -> Result<Vec<EnqueueVerdict>, StoreError> {
        let mut queues = QueueNumbers::default();
        for queue in superseded.iter().map(|job| job.queue).chain(jobs.iter().map(|job| job.queue)) {
            queues.number_of(queue);
        }
        let mut call = self.job_script(&ENQUEUE, queues.names());
        call.push_arg(superseded.len());
        for job in superseded {
            call.push_arg(queues.number_of(job.queue)).push_arg(job.id.as_str());
        }
        for job in jobs {
            push_job(&mut call, &mut queues, job);
        }
        let codes = self.run_per_job(&call, jobs.len()).await?;
        codes
            .into_iter()
            .map(|code| match code {
                1 => Ok(EnqueueVerdict::Inserted),
                2 => Ok(EnqueueVerdict::Moved),
                3 => Ok(EnqueueVerdict::Kept),
                4 => Ok(EnqueueVerdict::Again),
                5 => Ok(EnqueueVerdict::Dead),
                other => Err(StoreError::invalid_answer(ENQUEUE.name, other)),
            })
            .collect()
    }

    /// Inserts absent jobs and moves jobs earlier that are due too late. A job that a snooze, a backoff or an operator
    /// delayed is moved only if it is more than 60 s late. Never removes a job. Returns one verdict per job, in their
    /// order.
    pub async fn repair(&self, jobs: &[NewJob]) -> Result<Vec<RepairVerdict>, StoreError> {
        self.repair_verdicts(&REPAIR, jobs).await
    }

    /// Returns what [`Store::repair`] would do, without doing it.
    pub async fn preview_repair(&self, jobs: &[NewJob]) -> Result<Vec<RepairVerdict>, StoreError> {
        self.repair_verdicts(&COMPARE, jobs).await
    }

    async fn repair_verdicts(
        &self,
        script: &'static NamedScript,
        jobs: &[NewJob],
    ) -> Result<Vec<RepairVerdict>, StoreError> {
        let mut verdicts = Vec::with_capacity(jobs.len());
        for batch in jobs.chunks(BATCH) {
            let mut queues = QueueNumbers::default();
            for job in batch {
                queues.number_of(job.queue);
            }
            let mut call = self.job_script(script, queues.names());
            call.push_arg(REPAIR_TOLERANCE_MS);
            for job in batch {
                push_job(&mut call, &mut queues, job);
            }
            verdicts.extend(read_repair_codes(script, batch.len(), self.run_idempotent(&call).await?)?);
        }
        Ok(verdicts)
    }

    /// Runs an idempotent script that returns one code per job.
    async fn run_per_job(&self, call: &ScriptCall, jobs: usize) -> Result<Vec<u8>, StoreError> {
        let codes: Vec<u8> = self.run_idempotent(call).await?;
        if codes.len() == jobs {
            Ok(codes)
        } else {
            Err(StoreError::invalid_answer(call.script.name, "not one code per job"))
        }
    }
}

/// Reads the codes that `repair_all` in repair_all.lua returns for this number of jobs.
pub(super) fn read_repair_codes(
    script: &'static NamedScript,
    jobs: usize,
    codes: Vec<u8>,
) -> Result<Vec<RepairVerdict>, StoreError> {
    if codes.len() != jobs {
        return Err(StoreError::invalid_answer(script.name, "not one code per job"));
    }
    codes
        .into_iter()
        .map(|code| match code {
            1 => Ok(RepairVerdict::Inserted),
            2 => Ok(RepairVerdict::Moved),
            3 => Ok(RepairVerdict::Fine),
            5 => Ok(RepairVerdict::Dead),
            other => Err(StoreError::invalid_answer(script.name, other)),
        })
        .collect()
}
