//! Limits shared by the fleet: concurrency limits and rate limits.
//!
//! A call takes a slot or token under all its limits in one step, or under none. Slots are leases: the slots of a dead
//! holder expire [`SLOT`] after its last renewal. A rate is a number in Redis that expires when the rate has recovered.
//! There is no queue: a caller that finds a limit reached asks again later, in any order.

use std::{collections::BTreeSet, mem, time::Duration};

use rand::RngExt;
use tokio::runtime::Handle;
use tracing::warn;

use super::{
    client::Store,
    ended_permits::Permit,
    error::StoreError,
    script::{ACQUIRE, FREE_SLOTS, KEEP_SLOTS, ScriptCall},
};

/// Duration of a slot without renewal; as long as a job's lease.
const SLOT: Duration = Duration::from_secs(8);

/// Maximum time that the slots of ended work wait to be released by the next call that takes slots.
const RETURNED_WITHIN: Duration = Duration::from_millis(10);

/// A limit, identified by its name. All callers should use the same numbers for a name; each call applies its own
/// numbers.
#[derive(Debug, Clone, PartialEq)]
pub enum Limit {
    /// At most `max` at once.
    Slots { name: String, max: u32 },
    /// `count` per time, evenly spaced, and up to `burst` at once after a pause.
    Rate { name: String, count: u32, per: Duration, burst: u32 },
}

impl Limit {
    pub fn slots(name: impl Into<String>, max: u32) -> Self {
        Self::Slots { name: name.into(), max }
    }

    /// Creates a rate limit without bursts: one every `per / count`. A `count` of 0 counts as 1.
    pub fn rate(name: impl Into<String>, count: u32, per: Duration) -> Self {
        Self::Rate { name: name.into(), count, per, burst: 1 }
    }

    /// Sets how many may pass at once after a pause; at least one. Has no effect on slots.
    #[must_use]
    pub fn with_burst(mut self, most: u32) -> Self {
        if let Self::Rate { burst, .. } = &mut self {
            *burst = most;
        }
        self
    }
}

#[derive(Debug)]
pub enum AcquireVerdict {
    Permit(Permit),
    /// At least one limit is reached, and nothing was taken.
    Busy {
        /// Time after which another call is worthwhile. It may be busy then, too.
        retry_after: Duration,
    },
}

/// Permits that a call releases. If the call fails or is aborted, they wait for the next call.
struct EndedOnCall<'a> {
    store: &'a Store,
    permits: Vec<Permit>,
}

impl Drop for EndedOnCall<'_> {
    fn drop(&mut self) {
        if !self.permits.is_empty() && Handle::try_current().is_ok() {
            self.store.return_permits(mem::take(&mut self.permits));
        }
    }
}

impl Store {
    /// Takes a slot or token under each of these limits, or under none.
    ///
    /// After an error, slots or tokens may have been taken. Such slots expire; such a token is used up.
    pub async fn acquire(&self, limits: &[Limit]) -> Result<AcquireVerdict, StoreError> {
        let key = |limit: &Limit| match limit {
            Limit::Slots { name, .. } => self.keys.limit_slots(name),
            Limit::Rate { name, .. } => self.keys.limit_rate(name),
        };
        let slots = limits.iter().filter(|limit| matches!(limit, Limit::Slots { .. })).map(key);
        let permit = Permit { slots: slots.collect(), holder: format!("{:032x}", rand::rng().random::<u128>()) };
        let mut ended = EndedOnCall { store: self, permits: self.ended_permits.take_within(&permit.slots) };
        let mut call = ACQUIRE.with_keys(&limits.iter().map(key).collect::<Vec<_>>());
        call.push_arg(self.now_arg()).push_arg(&permit.holder).push_arg(SLOT.as_millis().to_string());
        call.push_arg(ended.permits.len());
        for permit in &ended.permits {
            call.push_arg(&permit.holder);
        }
        for limit in limits {
            match limit {
                Limit::Slots { max, .. } => call.push_arg("slots").push_arg(*max),
                Limit::Rate { count, per, burst, .. } => {
                    let interval_ms = per.as_secs_f64() * 1000.0 / f64::from((*count).max(1));
                    call.push_arg("rate").push_arg(interval_ms).push_arg((*burst).max(1))
                }
            };
        }
        let busy_ms: u64 = self.run_script(&call).await?;
        ended.permits.clear();
        if busy_ms > 0 {
            return Ok(AcquireVerdict::Busy { retry_after: Duration::from_millis(busy_ms) });
        }
        Ok(AcquireVerdict::Permit(permit))
    }

    /// Renews a permit's slots for another 8 s. An expired slot is taken again, even beyond the limit: the work still
    /// runs, so it must be counted.
    pub async fn keep_slots(&self, permit: &Permit) -> Result<(), StoreError> {
        let mut call = KEEP_SLOTS.with_keys(&permit.slots);
        call.push_arg(self.now_arg()).push_arg(&permit.holder).push_arg(SLOT.as_millis().to_string());
        self.run_permit_script(permit, &call).await
    }

    /// Returns slots that end later than any slot may, which no script writes: the limit's key, the holder, and the time in
    /// ms until the end. Returns at most ten for each limit. `tolerance` covers a change of Redis' clock.
    pub async fn list_overlong_slots(&self, tolerance: Duration) -> Result<Vec<(String, String, u64)>, StoreError> {
        let mut found = Vec::new();
        for key in self.find_keys(&self.keys.limit_slots("*"), "zset").await? {
            let now_ms = self.now_ms().await?;
            let latest = u64::try_from((SLOT + tolerance).as_millis()).unwrap_or(u64::MAX).saturating_add(now_ms);
            let mut range = redis::cmd("ZRANGE");
            range.arg(&key).arg(latest).arg("+inf").arg("BYSCORE").arg("LIMIT").arg(0).arg(10).arg("WITHSCORES");
            let slots: Vec<(String, u64)> = self.run_query("overlong slots", &range).await?;
            found.extend(slots.into_iter().map(|(holder, ends_ms)| (key.clone(), holder, ends_ms - now_ms)));
        }
        Ok(found)
    }

    /// Releases a permit's slots. If the call fails, the caller need not retry, because the slots expire.
    pub async fn give_back_slots(&self, permit: Permit) -> Result<(), StoreError> {
        self.give_back_all(&[permit]).await
    }

    /// Releases a permit's slots with the next call that takes some, or within 10 ms. Does not wait. Must be called
    /// inside a tokio runtime.
    pub(crate) fn give_back_soon(&self, permit: Permit) {
        self.return_permits((!permit.holds_nothing()).then_some(permit));
    }

    fn return_permits(&self, ended: impl IntoIterator<Item = Permit>) {
        if !self.ended_permits.add_ended(ended) {
            return;
        }
        let store = self.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(RETURNED_WITHIN).await;
                let ended = store.ended_permits.take_some();
                if ended.is_empty() {
                    return;
                }
                if let Err(error) = store.give_back_all(&ended).await {
                    warn!(%error, slots = ended.len(), "Cannot return slots under a limit; they expire within 8 s.");
                }
            }
        });
    }

    async fn give_back_all(&self, permits: &[Permit]) -> Result<(), StoreError> {
        let keys: BTreeSet<&String> = permits.iter().flat_map(|permit| &permit.slots).collect();
        if keys.is_empty() {
            return Ok(());
        }
        let mut call = FREE_SLOTS.with_keys(&keys.into_iter().cloned().collect::<Vec<_>>());
        for permit in permits {
            call.push_arg(&permit.holder);
        }
        self.run_idempotent(&call).await
    }

    async fn run_permit_script(&self, permit: &Permit, call: &ScriptCall) -> Result<(), StoreError> {
        if permit.holds_nothing() {
            return Ok(());
        }
        self.run_idempotent(call).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn aborted_call_leaves_permits_to_the_next() {
        let store = Store::connect_lazy("redis://127.0.0.1:1/").unwrap();
        let ended = Permit { slots: vec![store.keys.limit_slots("acme")], holder: "ended".to_owned() };
        store.ended_permits.lock().ended.push(ended);
        let limits = [Limit::slots("acme", 1)];
        // Sends one call and aborts it before the answer.
        let aborted = tokio::time::timeout(Duration::ZERO, store.acquire(&limits)).await;
        assert!(aborted.is_err(), "there was no answer to wait for: {aborted:?}");
        let waiting = store.ended_permits.lock();
        assert_eq!(waiting.ended.iter().map(|permit| permit.holder.as_str()).collect::<Vec<_>>(), ["ended"]);
        assert!(waiting.is_awaited);
    }
}
