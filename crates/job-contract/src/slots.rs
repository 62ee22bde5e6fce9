//! Slots: what a job must hold while it does something that only so many may do at once.
//!
//! A job that needs slots names a *group* and an *own* name. It holds one slot of the shard, one of its group and the only
//! one of its own name, together or not at all. How many the shard and each group have is the engine's to know.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
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
    need: SlotNeed,
    asked_at: Instant,
    ends_by: Instant,
    state: Arc<AtomicU8>,
}

/// What became of a grant, as the number that its clones share.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
enum GrantState {
    Unused,
    /// Work has begun with it.
    InUse,
    /// Nothing of the work is open any more.
    Closed,
    GivenBack,
}

impl SlotGrant {
    /// `holder` is unique per grant, `need` is what it was given for; `ends_by` is counted from a moment before the slots
    /// were asked for.
    pub fn new(holder: impl Into<Arc<str>>, need: SlotNeed, ends_by: Instant) -> Self {
        let (holder, asked_at) = (holder.into(), ends_by - need.hold);
        Self { holder, need, asked_at, ends_by, state: Arc::new(AtomicU8::new(GrantState::Unused as u8)) }
    }

    /// Whose grant it is: only this holder frees the slots.
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// Returns whether these are the slots that `need` asks for. What a job needs may have changed while it waited.
    pub fn fits(&self, need: &SlotNeed) -> bool {
        self.need.group == need.group && self.need.own == need.own
    }

    /// When the work must have ended, by this process' monotonic clock: never later than the slots end in Redis.
    pub fn ends_by(&self) -> Instant {
        self.ends_by
    }

    /// A moment of this process before the slots were given.
    pub fn asked_at(&self) -> Instant {
        self.asked_at
    }

    /// Marks the slots as in use. Returns whether work may begin with them: they were not used yet, and last beyond `now`.
    pub fn begin_use(&self, now: Instant) -> bool {
        now < self.ends_by && self.change_state(GrantState::Unused, GrantState::InUse)
    }

    /// Returns whether no work has begun with the slots, and they were not given back.
    pub fn is_unused(&self) -> bool {
        self.state.load(Ordering::SeqCst) == GrantState::Unused as u8
    }

    /// Says that nothing of the work is open any more, on the other side neither: if it is aborted from here on, its slots are
    /// freed at once.
    pub fn mark_closed(&self) {
        self.change_state(GrantState::InUse, GrantState::Closed);
    }

    /// Returns whether the slots may go to others before their time: see [`mark_closed`](Self::mark_closed).
    pub fn is_closed(&self) -> bool {
        self.state.load(Ordering::SeqCst) == GrantState::Closed as u8
    }

    /// Marks the slots as given back. Returns whether they were not yet: one call per grant is enough.
    pub fn give_back(&self) -> bool {
        self.state.swap(GrantState::GivenBack as u8, Ordering::SeqCst) != GrantState::GivenBack as u8
    }

    /// Marks slots that no work has begun with as given back. Returns whether they were not.
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
