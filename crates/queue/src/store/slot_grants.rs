//! Acquiring slots.

use std::time::Instant;

use job_contract::{SlotGrant, SlotNeed};
use rand::RngExt;

use super::{client::Store, ended_slots::EndedSlots, error::StoreError, script::ACQUIRE_SLOTS};
use crate::{
    job::{JobId, round_up_ms},
    life,
};

/// Result of acquiring slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlotVerdict {
    /// The job has all its slots. Free them with [`Store::release_slots`] when the work has ended.
    Granted(SlotGrant),
    /// At least one of the slots is taken, or other jobs of the group are waiting. Nothing was granted: park the job.
    Busy,
    /// No slots are granted now: Redis lost the jobs or restarted, and the rebuild has not finished. Park the job.
    Closed,
}

impl Store {
    /// Grants a job of this queue all the slots that it needs, or none.
    ///
    /// After an error, or if the future is dropped early, Redis may still have granted them. They are then freed as
    /// [`release_slots_soon`](Self::release_slots_soon) does.
    pub async fn acquire_slots(&self, queue: &str, job: &JobId, need: &SlotNeed) -> Result<SlotVerdict, StoreError> {
        self.ask_for_slots(queue, job, need, "").await
    }

    /// Exchanges slots that no work has used yet for those of `need`, in one step. Whatever the verdict, the job loses
    /// the slots that it had. Otherwise the same as [`acquire_slots`](Self::acquire_slots).
    pub async fn exchange_slots(
        &self,
        queue: &str,
        job: &JobId,
        held: &SlotGrant,
        need: &SlotNeed,
    ) -> Result<SlotVerdict, StoreError> {
        let given_up = AskedSlots { store: self, ended: Some(EndedSlots { job: job.clone(), grant: held.clone() }) };
        let verdict = self.ask_for_slots(queue, job, need, held.holder()).await?;
        held.give_back();
        given_up.forget();
        Ok(verdict)
    }

    async fn ask_for_slots(
        &self,
        queue: &str,
        job: &JobId,
        need: &SlotNeed,
        given_up: &str,
    ) -> Result<SlotVerdict, StoreError> {
        let holder = format!("{}.{:032x}", life::own_name(), rand::rng().random::<u128>());
        let mut call = self.job_script(&ACQUIRE_SLOTS, [queue]);
        call.push_arg(job.as_str()).push_arg(&holder);
        call.push_arg(need.group()).push_arg(need.own()).push_arg(round_up_ms(need.hold())).push_arg(given_up);
        let grant = SlotGrant::new(holder, need.clone(), Instant::now() + need.hold());
        let asked = AskedSlots { store: self, ended: Some(EndedSlots { job: job.clone(), grant: grant.clone() }) };
        let code = self.run_idempotent(&call).await?;
        let verdict = match code {
            1_u8 => SlotVerdict::Granted(grant),
            2 => SlotVerdict::Busy,
            3 => SlotVerdict::Closed,
            other => return Err(StoreError::invalid_answer(ACQUIRE_SLOTS.name, other)),
        };
        asked.forget();
        Ok(verdict)
    }
}

/// Slots of a call in progress. They are freed if its answer does not arrive.
struct AskedSlots<'a> {
    store: &'a Store,
    ended: Option<EndedSlots>,
}

impl AskedSlots<'_> {
    /// Keeps the slots, because the answer has arrived.
    fn forget(mut self) {
        self.ended = None;
    }
}

impl Drop for AskedSlots<'_> {
    fn drop(&mut self) {
        if let (Some(ended), Ok(_)) = (self.ended.take(), tokio::runtime::Handle::try_current()) {
            self.store.release_slots_soon(ended);
        }
    }
}
