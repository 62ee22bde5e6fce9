//! Permits whose work has ended, until a call gives their slots back.

use std::{mem, time::Duration};

use parking_lot::{Mutex, MutexGuard};

/// Maximum number of permits that one call gives back.
const MOST_RETURNED: usize = 500;

/// Places taken under some limits. Give them back with [`give_back_slots`](super::Store::give_back_slots); keep them with
/// [`keep_slots`](super::Store::keep_slots).
#[derive(Debug)]
#[must_use = "its slots stay taken until they are given back or their time is over"]
pub struct Permit {
    pub(super) slots: Vec<String>,
    pub(super) holder: String,
}

impl Permit {
    /// How often to keep it: three times may fail before its time is over.
    pub(crate) const KEEP_EVERY: Duration = Duration::from_secs(2);

    /// Whether there is nothing to keep or to give back: what passed a rate has passed.
    pub fn holds_nothing(&self) -> bool {
        self.slots.is_empty()
    }
}

/// Permits that are not given back yet. The next call that takes slots of the same limits gives them back, too; otherwise a task does.
#[derive(Debug, Default)]
pub(super) struct EndedPermits(Mutex<WaitingPermits>);

#[derive(Debug, Default)]
pub(super) struct WaitingPermits {
    pub(super) ended: Vec<Permit>,
    /// A task will give them back.
    pub(super) is_awaited: bool,
}

impl EndedPermits {
    pub(super) fn lock(&self) -> MutexGuard<'_, WaitingPermits> {
        self.0.lock()
    }

    /// Adds permits. Returns whether a task must be started to write them.
    pub(super) fn add_ended(&self, ended: impl IntoIterator<Item = Permit>) -> bool {
        let mut waiting = self.lock();
        waiting.ended.extend(ended);
        !waiting.ended.is_empty() && !mem::replace(&mut waiting.is_awaited, true)
    }

    /// Takes those whose slots are all among these.
    pub(super) fn take_within(&self, keys: &[String]) -> Vec<Permit> {
        let mut waiting = self.lock();
        let is_within = |permit: &mut Permit| permit.slots.iter().all(|key| keys.contains(key));
        waiting.ended.extract_if(.., is_within).take(MOST_RETURNED).collect()
    }

    /// Takes some of what waits. Empty: the task ends.
    pub(super) fn take_some(&self) -> Vec<Permit> {
        let mut waiting = self.lock();
        let count = waiting.ended.len().min(MOST_RETURNED);
        waiting.is_awaited = count > 0;
        waiting.ended.drain(..count).collect()
    }
}
