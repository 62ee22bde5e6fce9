//! Permits whose work has ended, until a call releases their slots.

use std::{mem, time::Duration};

use parking_lot::{Mutex, MutexGuard};

/// Maximum number of permits that one call releases.
const MOST_RETURNED: usize = 500;

/// Slots and rate tokens taken under some limits. [`give_back_slots`](super::Store::give_back_slots) releases the slots;
/// [`keep_slots`](super::Store::keep_slots) renews them.
#[derive(Debug)]
#[must_use = "its slots stay taken until they are given back or their time is over"]
pub struct Permit {
    pub(super) slots: Vec<String>,
    pub(super) holder: String,
}

impl Permit {
    /// Interval of renewals. Three may fail before the slots expire.
    pub(crate) const KEEP_EVERY: Duration = Duration::from_secs(2);

    /// Returns whether there is nothing to renew or to release, because the permit has only rate tokens.
    pub fn holds_nothing(&self) -> bool {
        self.slots.is_empty()
    }
}

/// Permits that are not released yet. The next call that takes slots of the same limits releases them; otherwise a task
/// does.
#[derive(Debug, Default)]
pub(super) struct EndedPermits(Mutex<WaitingPermits>);

#[derive(Debug, Default)]
pub(super) struct WaitingPermits {
    pub(super) ended: Vec<Permit>,
    /// Whether a task will release them.
    pub(super) is_awaited: bool,
}

impl EndedPermits {
    pub(super) fn lock(&self) -> MutexGuard<'_, WaitingPermits> {
        self.0.lock()
    }

    /// Adds permits. Returns whether the caller must start a task that releases them.
    pub(super) fn add_ended(&self, ended: impl IntoIterator<Item = Permit>) -> bool {
        let mut waiting = self.lock();
        waiting.ended.extend(ended);
        !waiting.ended.is_empty() && !mem::replace(&mut waiting.is_awaited, true)
    }

    /// Takes the permits whose slots are all among these keys.
    pub(super) fn take_within(&self, keys: &[String]) -> Vec<Permit> {
        let mut waiting = self.lock();
        let is_within = |permit: &mut Permit| permit.slots.iter().all(|key| keys.contains(key));
        waiting.ended.extract_if(.., is_within).take(MOST_RETURNED).collect()
    }

    /// Takes some of the waiting permits. If the result is empty, the task ends.
    pub(super) fn take_some(&self) -> Vec<Permit> {
        let mut waiting = self.lock();
        let count = waiting.ended.len().min(MOST_RETURNED);
        waiting.is_awaited = count > 0;
        waiting.ended.drain(..count).collect()
    }
}
