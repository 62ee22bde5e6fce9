//! Checks the timers that changes of one order make obsolete for good.

use std::collections::BTreeSet;

use model::{
    decide::{superseded::superseded_timers, timers::derive_timers},
    order::Snapshot,
};

/// Timers superseded so far. No later state may need them.
#[derive(Debug, Default)]
pub(crate) struct SupersededTimers(BTreeSet<String>);

fn wanted(s: &Snapshot) -> BTreeSet<String> {
    derive_timers(s).iter().map(|timer| timer.id().to_string()).collect()
}

impl SupersededTimers {
    /// Checks a change, given the order before and after it.
    pub(crate) fn record_change(&mut self, before: &Snapshot, after: &Snapshot) {
        let (asked_for, is_asked_for) = (wanted(before), wanted(after));
        for timer in superseded_timers(before, after) {
            let id = timer.id.to_string();
            assert!(!is_asked_for.contains(&id), "{id} is still needed");
            if id.starts_with("lifetime:") {
                let status = after.order.status;
                assert!(!status.is_searching() && !status.occupies_driver(), "{id} may be needed again: {after:?}");
            } else {
                assert!(asked_for.contains(&id), "{id} was not needed before");
                assert!(id.split(':').count() >= 3, "{id} has no number and may be needed again");
            }
            self.0.insert(id);
        }
        let again: Vec<_> = self.0.intersection(&is_asked_for).collect();
        assert!(again.is_empty(), "{again:?} is needed again in {after:?}");
        // The timeout of a finished attempt is always superseded.
        let left = asked_for.difference(&is_asked_for).find(|id| id.starts_with("timeout:") && !self.0.contains(*id));
        assert_eq!(left, None, "of {after:?}");
        // The lifetime timer is superseded when the order ends within its lifetime.
        let has_ended = after.order.status.is_closed() && after.now < after.order.lifetime_deadline;
        let lifetime = format!("lifetime:{}", after.order.id);
        assert!(!has_ended || self.0.contains(&lifetime), "{lifetime} is not superseded by {after:?}");
    }
}
