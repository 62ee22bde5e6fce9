//! Renewing leases and handing them back.

use std::time::Duration;

use super::{
    Store, StoreError, Token,
    client::{BATCH, QueueNumbers},
    script::{EXTEND, NamedScript, RELEASE},
};
use crate::job::JobId;

/// A lease as its holder knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub queue: &'static str,
    pub id: JobId,
    pub token: Token,
}

/// What became of a lease that was to be renewed or released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    /// It was ours, and is renewed or released.
    Yes,
    /// It is not ours any more; nothing changed.
    Lost,
}

impl Store {
    /// Renews leases: each expires `lease` from now. Answers one verdict per lease, in their order.
    pub async fn extend(&self, held: &[Held], lease: Duration) -> Result<Vec<Renewed>, StoreError> {
        self.renew(&EXTEND, Some(lease), held).await
    }

    /// Hands jobs back: due as before, no try spent, other workers are woken. Answers one verdict per lease, in their
    /// order.
    pub async fn release(&self, held: &[Held]) -> Result<Vec<Renewed>, StoreError> {
        self.renew(&RELEASE, None, held).await
    }

    async fn renew(
        &self,
        script: &'static NamedScript,
        lease: Option<Duration>,
        held: &[Held],
    ) -> Result<Vec<Renewed>, StoreError> {
        let mut verdicts = Vec::with_capacity(held.len());
        for batch in held.chunks(BATCH) {
            let mut queues = QueueNumbers::default();
            let numbers: Vec<usize> = batch.iter().map(|held| queues.number(held.queue)).collect();
            let mut call = self.job_script(script, queues.names());
            if let Some(lease) = lease {
                call.arg(u64::try_from(lease.as_millis()).unwrap_or(u64::MAX));
            }
            for (held, number) in batch.iter().zip(numbers) {
                call.arg(number).arg(held.id.as_str()).arg(held.token.as_str());
            }
            let codes: Vec<u8> = self.run_patiently(&call).await?;
            if codes.len() != batch.len() {
                return Err(StoreError::answer(script.name, "not one code per job"));
            }
            verdicts.extend(codes.into_iter().map(|code| if code == 1 { Renewed::Yes } else { Renewed::Lost }));
        }
        Ok(verdicts)
    }
}
