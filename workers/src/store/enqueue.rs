//! Inserting jobs.

use super::{
    Store, StoreError,
    client::{BATCH, QueueNumbers, encode_envelope},
    script::{COMPARE, ENQUEUE, NamedScript, REPAIR},
};
use crate::job::NewJob;

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
        let codes = self.call_per_job(&ENQUEUE, &[], jobs).await?;
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
        let codes = self.call_per_job(script, &[REPAIR_TOLERANCE_MS], jobs).await?;
        read_repair_codes(script, jobs.len(), codes)
    }

    async fn call_per_job(
        &self,
        script: &'static NamedScript,
        args: &[u64],
        jobs: &[NewJob],
    ) -> Result<Vec<u8>, StoreError> {
        let mut codes = Vec::with_capacity(jobs.len());
        for batch in jobs.chunks(BATCH) {
            let mut queues = QueueNumbers::default();
            let numbers: Vec<usize> = batch.iter().map(|job| queues.number_of(job.queue)).collect();
            let mut call = self.job_script(script, queues.names());
            call.push_arg(args);
            for (job, number) in batch.iter().zip(numbers) {
                call.push_arg(number).push_arg(job.id.as_str()).push_arg(job.delay_ms()).push_arg(encode_envelope(job));
            }
            let answer: Vec<u8> = self.run_idempotent(&call).await?;
            if answer.len() != batch.len() {
                return Err(StoreError::invalid_answer(script.name, "not one code per job"));
            }
            codes.extend(answer);
        }
        Ok(codes)
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
