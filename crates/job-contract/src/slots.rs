//! Slots: what a job must hold while it does something that only so many may do at once.
//!
//! A job that needs slots names a *group* and an *own* name. It holds one slot of the shard, one of its group and the only
//! one of its own name, together or not at all. How many the shard and each group have is the engine's to know.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// The slots that a job needs, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotNeed {
    group: Arc<str>,
    own: Arc<str>,
    hold: Duration,
}

/// Why a need cannot be stated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSlotNeed {
    #[error("'{0}' names no slot: expected 1 to 100 letters, digits, '_', '-', '.', ':'")]
    Name(String),
    #[error("slots are held for 1 ms to 600 s, not for {0:?}")]
    Hold(Duration),
}

impl SlotNeed {
    /// Longest time for which slots are held.
    pub const LONGEST: Duration = Duration::from_secs(600);
    const MAX_BYTES: usize = 100;

    /// Checks both names and the time after which the slots end, counted from when the job gets them.
    pub fn new(group: impl Into<String>, own: impl Into<String>, hold: Duration) -> Result<Self, InvalidSlotNeed> {
        let (group, own) = (Self::check_name(group.into())?, Self::check_name(own.into())?);
        if hold < Duration::from_millis(1) || hold > Self::LONGEST {
            return Err(InvalidSlotNeed::Hold(hold));
        }
        Ok(Self { group, own, hold })
    }

    /// Returns the name if a group or an own slot may be called so.
    pub fn check_name(name: String) -> Result<Arc<str>, InvalidSlotNeed> {
        // '-' alone stands for "no name" in the engine's records.
        let fits = (1..=Self::MAX_BYTES).contains(&name.len())
            && name != "-"
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_:.-".contains(&b));
        if fits { Ok(name.into()) } else { Err(InvalidSlotNeed::Name(name)) }
    }

    /// The group: so many at once, set by an operator.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The name that one job holds at a time.
    pub fn own(&self) -> &str {
        &self.own
    }

    /// How long the slots last. They are never renewed.
    pub fn hold(&self) -> Duration {
        self.hold
    }
}

/// Slots that a job holds. Clones are the same grant.
#[derive(Debug, Clone)]
pub struct SlotGrant {
    holder: Arc<str>,
    ends_by: Instant,
    given_back: Arc<AtomicBool>,
}

impl SlotGrant {
    /// `holder` is unique per grant; `ends_by` is counted from a moment before the slots were asked for.
    pub fn new(holder: impl Into<Arc<str>>, ends_by: Instant) -> Self {
        Self { holder: holder.into(), ends_by, given_back: Arc::default() }
    }

    /// Whose grant it is: only this holder frees the slots.
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// When the work must have ended, by this process' monotonic clock: never later than the slots end in Redis.
    pub fn ends_by(&self) -> Instant {
        self.ends_by
    }

    /// Returns whether work may begin with the slots: they were not given back and last beyond `now`.
    pub fn is_held(&self, now: Instant) -> bool {
        !self.given_back.load(Ordering::SeqCst) && now < self.ends_by
    }

    /// Marks the slots as given back. Returns whether they were not yet: one call per grant is enough.
    pub fn give_back(&self) -> bool {
        !self.given_back.swap(true, Ordering::SeqCst)
    }
}

impl PartialEq for SlotGrant {
    fn eq(&self, other: &Self) -> bool {
        self.holder == other.holder
    }
}

impl Eq for SlotGrant {}

impl fmt::Display for SlotNeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.own, self.group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_break_a_key_or_a_record_are_refused() {
        let second = Duration::from_secs(1);
        assert!(SlotNeed::new("server:1", "B-1", second).is_ok());
        for bad in ["", "-", "a b", "{x}", "ä", &"x".repeat(101)] {
            assert_eq!(SlotNeed::new(bad, "B-1", second), Err(InvalidSlotNeed::Name(bad.to_owned())));
            assert_eq!(SlotNeed::new("server", bad, second), Err(InvalidSlotNeed::Name(bad.to_owned())));
        }
    }

    #[test]
    fn slots_are_held_for_a_time_that_ends() {
        for bad in [Duration::ZERO, Duration::from_micros(999), SlotNeed::LONGEST + Duration::from_millis(1)] {
            assert_eq!(SlotNeed::new("server", "B-1", bad), Err(InvalidSlotNeed::Hold(bad)));
        }
    }
}
