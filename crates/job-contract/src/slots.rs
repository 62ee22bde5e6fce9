//! Slots: permission for work that only a limited number of jobs may do at once.
//!
//! A job that needs slots names a *group* and an *own* name. It holds one slot of the shard, one of its group and the
//! only one of its own name: all three or none. The engine knows the limits of the shard and of each group.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};

/// Slots that a job needs, and their duration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotNeed {
    group: Arc<str>,
    own: Arc<str>,
    hold: Duration,
}

/// Error for an invalid need.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSlotNeed {
    #[error("'{0}' is not a valid slot name: expected 1 to 100 letters, digits, '_', '-', '.', ':'")]
    Name(String),
    #[error("slots are held for 1 ms to 600 s, not for {0:?}")]
    Hold(Duration),
}

impl SlotNeed {
    /// Maximum duration of slots.
    pub const LONGEST: Duration = Duration::from_secs(600);
    const MAX_BYTES: usize = 100;

    /// Creates a need after checking both names and the duration. The duration counts from the time at which the job
    /// gets the slots.
    pub fn new(group: impl Into<String>, own: impl Into<String>, hold: Duration) -> Result<Self, InvalidSlotNeed> {
        let (group, own) = (Self::check_name(group.into())?, Self::check_name(own.into())?);
        if hold < Duration::from_millis(1) || hold > Self::LONGEST {
            return Err(InvalidSlotNeed::Hold(hold));
        }
        Ok(Self { group, own, hold })
    }

    /// Checks the name of a group or an own name, and returns it.
    pub fn check_name(name: String) -> Result<Arc<str>, InvalidSlotNeed> {
        // '-' alone means "no name" in the engine's records.
        let fits = (1..=Self::MAX_BYTES).contains(&name.len())
            && name != "-"
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_:.-".contains(&b));
        if fits { Ok(name.into()) } else { Err(InvalidSlotNeed::Name(name)) }
    }

    /// Returns the group, whose limit an operator sets.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Returns the own name, which only one job holds at a time.
    pub fn own(&self) -> &str {
        &self.own
    }

    /// Returns the duration of the slots. They are never renewed.
    pub fn hold(&self) -> Duration {
        self.hold
    }
}

/// Slots that a job holds. Clones are the same grant.
#[derive(Debug, Clone)]
pub struct SlotGrant {
    holder: Arc<str>,
    need: SlotNeed,
    asked_at: Instant,
    ends_by: Instant,
    state: Arc<AtomicU8>,
}

/// State of a grant, stored as a number that its clones share.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
enum GrantState {
    Unused,
    /// Work has started with it.
    InUse,
    /// The work has ended.
    Closed,
    GivenBack,
}

impl SlotGrant {
    /// Creates a grant. `holder` is unique per grant, `need` names its slots. `ends_by` counts from a time before the
    /// request for the slots.
    pub fn new(holder: impl Into<Arc<str>>, need: SlotNeed, ends_by: Instant) -> Self {
        let (holder, asked_at) = (holder.into(), ends_by - need.hold);
        Self { holder, need, asked_at, ends_by, state: Arc::new(AtomicU8::new(GrantState::Unused as u8)) }
    }

    /// Returns the holder. Only the holder can free the slots.
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// Returns whether these are the slots of `need`. The need of a job may have changed while it waited.
    pub fn fits(&self, need: &SlotNeed) -> bool {
        self.need.group == need.group && self.need.own == need.own
    }

    /// Returns the time by which the work must end, by this process' monotonic clock. The slots in Redis never end
    /// earlier.
    pub fn ends_by(&self) -> Instant {
        self.ends_by
    }

    /// Returns the time when this process requested the slots, by its monotonic clock. It is before the slots were
    /// granted.
    pub fn asked_at(&self) -> Instant {
        self.asked_at
    }

    /// Marks the slots as in use. Returns whether work may start with them: they were unused, and last beyond `now`.
    pub fn begin_use(&self, now: Instant) -> bool {
        now < self.ends_by && self.change_state(GrantState::Unused, GrantState::InUse)
    }

    /// Returns whether no work has started with the slots, and they were not released.
    pub fn is_unused(&self) -> bool {
        self.state.load(Ordering::SeqCst) == GrantState::Unused as u8
    }

    /// Records that the work has ended, also at the system that it called. If the job is aborted after this call, its
    /// slots are freed at once.
    pub fn mark_closed(&self) {
        self.change_state(GrantState::InUse, GrantState::Closed);
    }

    /// Returns whether the slots may go to other jobs before their time: see [`mark_closed`](Self::mark_closed).
    pub fn is_closed(&self) -> bool {
        self.state.load(Ordering::SeqCst) == GrantState::Closed as u8
    }

    /// Marks the slots as released. Returns `true` only for the first call per grant.
    pub fn give_back(&self) -> bool {
        self.state.swap(GrantState::GivenBack as u8, Ordering::SeqCst) != GrantState::GivenBack as u8
    }

    /// Marks slots that no work has used as released. Returns whether this call changed their state.
    pub fn give_back_unused(&self) -> bool {
        self.change_state(GrantState::Unused, GrantState::GivenBack)
    }

    fn change_state(&self, from: GrantState, to: GrantState) -> bool {
        self.state.compare_exchange(from as u8, to as u8, Ordering::SeqCst, Ordering::SeqCst).is_ok()
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
    fn unsafe_slot_names_are_refused() {
        let second = Duration::from_secs(1);
        assert!(SlotNeed::new("server:1", "B-1", second).is_ok());
        for bad in ["", "-", "a b", "{x}", "ä", &"x".repeat(101)] {
            assert_eq!(SlotNeed::new(bad, "B-1", second), Err(InvalidSlotNeed::Name(bad.to_owned())));
            assert_eq!(SlotNeed::new("server", bad, second), Err(InvalidSlotNeed::Name(bad.to_owned())));
        }
    }

    #[test]
    fn grant_fits_equal_need_of_any_duration() {
        let need = |group, own, secs| SlotNeed::new(group, own, Duration::from_secs(secs)).unwrap();
        let now = Instant::now();
        let grant = SlotGrant::new("holder", need("server", "B-1", 5), now + Duration::from_secs(5));
        assert_eq!(grant.asked_at(), now);
        assert!(grant.fits(&need("server", "B-1", 9)));
        assert!(!grant.fits(&need("other", "B-1", 5)) && !grant.fits(&need("server", "B-2", 5)));
    }

    #[test]
    fn grant_is_used_and_returned_once() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let grant = |ends_by| SlotGrant::new("holder", SlotNeed::new("server", "B-1", second).unwrap(), ends_by);
        let used = grant(now + second);
        assert!(used.begin_use(now) && !used.is_unused());
        assert!(!used.clone().begin_use(now) && !used.give_back_unused());
        used.mark_closed();
        assert!(used.is_closed() && !used.give_back_unused());
        assert!(used.give_back() && !used.give_back() && !used.is_closed());
        let unused = grant(now + second);
        assert!(unused.give_back_unused() && !unused.give_back() && !unused.begin_use(now));
        let over = grant(now);
        assert!(!over.begin_use(now) && over.give_back_unused());
    }

    #[test]
    fn slot_duration_is_bounded() {
        for bad in [Duration::ZERO, Duration::from_micros(999), SlotNeed::LONGEST + Duration::from_millis(1)] {
            assert_eq!(SlotNeed::new("server", "B-1", bad), Err(InvalidSlotNeed::Hold(bad)));
        }
    }
}
