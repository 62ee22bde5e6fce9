//! Renewing leases and handing jobs back.

use std::time::Duration;

use super::{
    bounds::BATCH,
    client::{QueueNumbers, Store},
    error::StoreError,
    leased::LeaseToken,
    script::{EXTEND, NamedScript, RELEASE},
};
use crate::job::JobId;

/// Lease, as its holder knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLease {
    pub queue: &'static str,
    pub id: JobId,
    pub token: LeaseToken,
}

/// Result of renewing or releasing one lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseVerdict {
    /// This process had the lease; it is renewed or released.
    Yes,
    /// This process no longer has the lease; nothing changed.
    Lost,
}

impl Store {
    /// Renews leases. Each expires `lease` from now. Returns one verdict per lease, in their order.
    pub async fn extend(&self, held: &[HeldLease], lease: Duration) -> Result<Vec<LeaseVerdict>, StoreError> {
        self.run_lease_script(&EXTEND, Some(lease), held).await
    }

    /// Hands jobs back: due as before, with no try spent. Wakes other workers. Returns one verdict per lease, in their
    /// order.
    pub async fn release(&self, held: &[HeldLease]) -> Result<Vec<LeaseVerdict>, StoreError> {
        self.run_lease_script(&RELEASE, None, held).await
    }

    async fn run_lease_script(
        &self,
        script: &'static NamedScript,
        lease: Option<Duration>,
        held: &[HeldLease],
    ) -> Result<Vec<LeaseVerdict>, StoreError> {
        let mut verdicts = Vec::with_capacity(held.len());
        for batch in held.chunks(BATCH) {
            let mut queues = QueueNumbers::default();
            let numbers: Vec<usize> = batch.iter().map(|held| queues.number_of(held.queue)).collect();
            let mut call = self.job_script(script, queues.names());
            if let Some(lease) = lease {
                call.push_arg(u64::try_from(lease.as_millis()).unwrap_or(u64::MAX));
            }
            for (held, number) in batch.iter().zip(numbers) {
                call.push_arg(number).push_arg(held.id.as_str()).push_arg(held.token.as_str());
            }
            let codes: Vec<u8> = self.run_patiently(&call).await?;
            if codes.len() != batch.len() {
                return Err(StoreError::invalid_answer(script.name, "not one code per job"));
            }
            verdicts
                .extend(codes.into_iter().map(|code| if code == 1 { LeaseVerdict::Yes } else { LeaseVerdict::Lost }));
        }
        Ok(verdicts)
    }
}
