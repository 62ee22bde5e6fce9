//! Inserting jobs.

use super::{
    Store, StoreError,
    client::{BATCH, QueueNumbers, envelope},
    script::{COMPARE, ENQUEUE, NamedScript, REPAIR},
};
use crate::job::NewJob;

/// Delay beyond which `repair` moves a job earlier that was put off on purpose. Snoozes and backoffs stay below it.
const REPAIR_TOLERANCE_MS: u64 = 60_000;

/// What became of a job that was enqueued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enqueued {
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
pub enum Repaired {
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
    pub async fn enqueue(&self, jobs: &[NewJob]) -> Result<Vec<Enqueued>, StoreError> {
        let codes = self.call_per_job(&ENQUEUE, &[], jobs).await?;
        codes
            .into_iter()
            .map(|code| match code {
                1 => Ok(Enqueued::Inserted),
                2 => Ok(Enqueued::Moved),
                3 => Ok(Enqueued::Kept),
                4 => Ok(Enqueued::Again),
                5 => Ok(Enqueued::Dead),
                other => Err(StoreError::answer(ENQUEUE.name, other)),
            })
            .collect()
    }

    /// Puts back what is missing: absent jobs are inserted; jobs that lie later than wanted are moved earlier, those put
    /// off by a snooze, a backoff or an operator only beyond 60 s. Never removes. Answers one verdict per job, in their
    /// order.
    pub async fn repair(&self, jobs: &[NewJob]) -> Result<Vec<Repaired>, StoreError> {
        self.verdicts(&REPAIR, jobs).await
    }

    /// Answers what [`Store::repair`] would do, and does nothing.
    pub async fn preview_repair(&self, jobs: &[NewJob]) -> Result<Vec<Repaired>, StoreError> {
        self.verdicts(&COMPARE, jobs).await
    }

    async fn verdicts(&self, script: &'static NamedScript, jobs: &[NewJob]) -> Result<Vec<Repaired>, StoreError> {
        let codes = self.call_per_job(script, &[REPAIR_TOLERANCE_MS], jobs).await?;
        codes
            .into_iter()
            .map(|code| match code {
                1 => Ok(Repaired::Inserted),
                2 => Ok(Repaired::Moved),
                3 => Ok(Repaired::Fine),
                5 => Ok(Repaired::Dead),
                other => Err(StoreError::answer(script.name, other)),
            })
            .collect()
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
            let numbers: Vec<usize> = batch.iter().map(|job| queues.number(job.queue)).collect();
            let mut call = self.job_script(script, queues.names());
            call.arg(args);
            for (job, number) in batch.iter().zip(numbers) {
                call.arg(number).arg(job.id.as_str()).arg(job.delay_ms()).arg(envelope(job));
            }
            let answer: Vec<u8> = self.run_again(&call).await?;
            if answer.len() != batch.len() {
                return Err(StoreError::answer(script.name, "not one code per job"));
            }
            codes.extend(answer);
        }
        Ok(codes)
    }
}
