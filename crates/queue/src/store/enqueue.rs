//! Inserting jobs, and cancelling those they supersede.

use super::{
    bounds::BATCH,
    client::{QueueNumbers, Store, push_job},
    error::StoreError,
    script::{COMPARE, ENQUEUE, NamedScript, REPAIR, ScriptCall},
};
use crate::job::{JobAddress, NewJob};

/// Delay beyond which `repair` moves a job earlier that was put off on purpose. Snoozes and backoffs stay below it.
pub(super) const REPAIR_TOLERANCE_MS: u64 = 60_000;

/// What became of a job that was enqueued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnqueueVerdict {
    /// It was absent.
    Inserted,
    /// It was due later and is due earlier now. The payload of the earlier insert stays.
    Moved,
    /// It is due earlier already.
    Kept,
    /// It is being performed now and runs again, at the earliest due wanted meanwhile.
    Again,
    /// It is dead and stays so until an operator decides.
    Dead,
}

/// What became of a job that was to be repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairVerdict {
    /// It was absent.
    Inserted,
    /// It lay later than its row wants it: its enqueue was lost, or it was put off by more than 60 s.
    Moved,
    /// Leased, or due in time.
    Fine,
    /// It is dead and stays so until an operator decides.
    Dead,
}

impl Store {
    /// Inserts jobs, each due after its delay. Answers one verdict per job, in their order.
    ///
    /// Any number of jobs; they go in batches of 500, each batch atomic. Enqueueing twice is harmless, so a caller may
    /// repeat a call that failed.
    pub async fn enqueue(&self, jobs: &[NewJob]) -> Result<Vec<EnqueueVerdict>, StoreError> {
        self.enqueue_superseding(jobs, &[]).await
    }

    /// As [`enqueue`](Self::enqueue), and cancels the superseded jobs that wait, in the same call and before it inserts. One that is
    /// leased, parked or dead stays as it is. For jobs that are never wanted again: a cancel may come late, or not at all.
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

    /// Puts back what is missing: absent jobs are inserted; jobs that lie later than wanted are moved earlier, those put
    /// off by a snooze, a backoff or an operator only beyond 60 s. Never removes. Answers one verdict per job, in their
    /// order.
    pub async fn repair(&self, jobs: &[NewJob]) -> Result<Vec<RepairVerdict>, StoreError> {
        self.repair_verdicts(&REPAIR, jobs).await
    }

    /// Answers what [`Store::repair`] would do, and does nothing.
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

    /// Runs an idempotent script that answers one code per job.
    async fn run_per_job(&self, call: &ScriptCall, jobs: usize) -> Result<Vec<u8>, StoreError> {
        let codes: Vec<u8> = self.run_idempotent(call).await?;
        if codes.len() == jobs {
            Ok(codes)
        } else {
            Err(StoreError::invalid_answer(call.script.name, "not one code per job"))
        }
    }
}

/// Reads what `repair_all` in repair_all.lua answers of so many jobs.
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
