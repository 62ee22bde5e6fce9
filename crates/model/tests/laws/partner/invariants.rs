//! Invariants of a partner's order.

use model::{
    decide::{Change, timers},
    messages::MANUAL_REFUND_REQUIRED,
    order::{Booking, BookingState, EventReason, OrderStatus, state},
};

use super::orders::{Luck, Model, Step};

impl Model {
    /// Applies a change with the same function as `Orders::change`.
    pub(super) fn apply(&mut self, change: Change) {
        assert_eq!((change.version, change.at), (self.s.order.version, self.s.now));
        let mut at = self.s.order.status;
        for event in &change.events {
            assert_eq!(event.from, at, "the chain of states is unbroken");
            assert!(state::is_transition_allowed(Some(event.from), event.to), "{} -> {}", event.from, event.to);
            at = event.to;
        }
        assert_eq!(at, change.order.status, "the last event leads to the row's state");
        for booking in &change.bookings {
            if let Some(known) = self.s.booking_of_attempt(booking.attempt_no) {
                assert_follows(known, booking);
            }
        }
        let before = self.s.clone();
        self.s = self.s.apply(&change);
        self.superseded.record_change(&before, &self.s);
        // Applying the change again yields the same row.
        let alerts = change.messages.iter().filter(|m| m.kind() == MANUAL_REFUND_REQUIRED);
        self.refund_alerts.extend(alerts.map(|m| m.dedupe_key.clone()));
        self.history.extend(change.events);
    }

    /// Checks the invariants of every state.
    pub(super) fn check(&self) {
        let (o, now) = (&self.s.order, self.s.now);
        // The CHECK constraints of the tables.
        assert!(o.driver_id.is_some() || !(o.status.occupies_driver() || o.status == OrderStatus::Completed));
        assert!(o.attempt_deadline.is_none() || o.next_attempt_at.is_none(), "{o:?}");
        assert_eq!(o.held_for_review, o.held_reason.is_some());
        assert_eq!(o.closed_at.is_some(), o.status.is_closed());
        for b in &self.s.bookings {
            let waits = b.state.is_unanswered() || b.state == BookingState::CancelWanted;
            assert_eq!(b.next_try_at.is_some(), waits, "{b:?}");
            assert_eq!(b.closed_at.is_some(), !b.state.is_live() && b.state != BookingState::CancelWanted, "{b:?}");
            let reached_assigned = self.history.iter().any(|e| {
                e.attempt_no == Some(b.attempt_no) && e.to == OrderStatus::Assigned && e.from != OrderStatus::Assigned
            });
            assert_eq!(b.assigned_at.is_some(), reached_assigned, "{b:?}");
            assert!(b.state != BookingState::Booked || (b.booking_id.is_some() && b.booked_at.is_some()), "{b:?}");
        }

        let live: Vec<_> = self.s.bookings.iter().filter(|b| b.state.is_live()).collect();
        assert!(live.len() <= 1, "{live:?}");
        if let Some(booking) = live.first() {
            assert_eq!(booking.attempt_no, o.attempt_no, "only the latest attempt has a live booking");
            let wanted = matches!(o.status, OrderStatus::PendingJobId | OrderStatus::Assigned) && !o.held_for_review;
            assert!(wanted || o.status.occupies_driver(), "{booking:?} of {o:?}");
        }
        if let Some(booking) = self.s.booking_of_attempt(o.attempt_no) {
            assert_eq!(
                o.partner.as_ref(),
                Some(&booking.partner),
                "the order is with the partner of its latest attempt"
            );
            let drivers = format!("{}:", booking.partner);
            let is_theirs = o.driver_id.as_ref().is_none_or(|driver| driver.starts_with(&drivers));
            assert!(is_theirs || !o.status.occupies_driver(), "{o:?}");
        }
        self.check_attempts();
        self.check_timers();
        assert!(!o.status.is_closed() || timers::order_timers(o, now).is_empty(), "it has ended: {o:?}");

        let cancelled = matches!(
            o.status,
            OrderStatus::CancelledByUser
                | OrderStatus::CancelledByDriver
                | OrderStatus::CancelledBySystemAfterPayment
                | OrderStatus::RefundPending
                | OrderStatus::Refunded
        );
        let owed = usize::from(cancelled && o.owes_refund());
        assert!(self.refund_alerts.len() <= 1, "support is notified once");
        assert!(self.refund_alerts.len() >= owed, "{} {}, without an alert", o.status, o.payment_status);
        assert!(o.status != OrderStatus::CancelledBySystem || !o.owes_refund(), "paid, without an alert");
    }

    /// Checks that a timer moves every searching order on, and that the order ends with its lifetime.
    fn check_timers(&self) {
        let (o, s) = (&self.s.order, &self.s);
        let ids: Vec<_> = timers::derive_timers(s).iter().map(|t| t.id().to_string()).collect();
        let has = |kind: &str| ids.iter().any(|id| id.starts_with(&format!("{kind}:")));
        let unique: std::collections::BTreeSet<_> = ids.iter().collect();
        assert_eq!(unique.len(), ids.len(), "one timer of a name: {ids:?}");
        if has("poll") {
            assert!(s.live_booking().is_some_and(|b| b.booking_id.is_some()), "there is nothing to ask for: {ids:?}");
        }
        if o.held_for_review || !o.status.is_searching() {
            return;
        }
        assert!(has("lifetime"), "{ids:?}");
        match o.status {
            OrderStatus::Assigned => assert!(has("timeout") && s.live_booking().is_some(), "{ids:?} of {s:?}"),
            _ => assert!(has("dispatch") || s.live_booking().is_some(), "no booking and no dispatch timer: {s:?}"),
        }
    }

    /// Checks that attempts are numbered 1, 2, 3, ..., and that each ends once, before the next starts or the search
    /// ends.
    fn check_attempts(&self) {
        let (mut started, mut running) = (0, false);
        for event in &self.history {
            if event.reason == EventReason::AttemptStarted {
                assert!(!running, "attempt {started} had no end: {:?}", self.history);
                started += 1;
                assert_eq!(event.attempt_no, Some(started));
                running = true;
            } else if event.reason.ends_attempt() {
                assert!(running, "attempt {started} ended twice: {:?}", self.history);
                assert_eq!(event.attempt_no, Some(started));
                running = false;
            }
        }
        assert_eq!((self.s.order.attempt_no, self.s.bookings.len()), (started, usize::try_from(started).unwrap()));
        let still = self.s.order.status.is_searching() && self.s.live_booking().is_some();
        assert_eq!(running, still, "{:?}: {:?}", self.s.order, self.history);
    }

    /// Runs all timers. The partner answers every request and finds no more drivers.
    pub(super) fn let_time_pass(&mut self) {
        for _ in 0..2_000 {
            while !self.is_silent() {
                self.take(Step::Answer(0, true));
                self.check();
                self.take(Step::Callback(0, false));
                self.check();
            }
            if timers::derive_timers(&self.s).iter().all(|t| t.id().kind() == "poll") {
                return;
            }
            self.take(Step::FireNext(Luck::Fine));
            self.check();
        }
        panic!("the model never becomes idle: {:?}", self.s);
    }

    /// Checks the final state: the order has ended, has a driver or is held, and the partner has no unneeded booking.
    pub(super) fn check_at_rest(&self) {
        let o = &self.s.order;
        assert!(o.status.is_closed() || o.status.occupies_driver() || o.held_for_review, "{o:?}");
        assert!(o.status.occupies_driver() || timers::derive_timers(&self.s).is_empty());
        let lifetime_ends = self.history.iter().filter(|e| e.reason == EventReason::LifetimeTimeout).count();
        assert!(lifetime_ends <= 1);
        for attempt in self.open_at_partner() {
            let booking = self.s.booking_of_attempt(attempt).unwrap();
            assert!(booking.state.is_live(), "the partner keeps {booking:?} for {o:?}");
        }
    }
}

/// Checks that a closed booking stays closed, except that its cancel may be repeated.
fn assert_follows(before: &Booking, after: &Booking) {
    use BookingState::{Booked, CancelWanted, Cancelled, Completed, Intent, Refused, Unknown};
    let allowed = before.state == after.state
        || matches!(
            (before.state, after.state),
            (Intent, Unknown | Booked | CancelWanted | Refused | Cancelled | Completed)
                | (Unknown, Booked | CancelWanted | Refused | Cancelled | Completed)
                | (Booked, CancelWanted | Cancelled | Completed | Refused)
                | (CancelWanted, Cancelled | Completed | Refused)
                | (Cancelled | Refused, CancelWanted)
        );
    assert!(allowed, "{before:?} -> {after:?}");
    assert!(before.booking_id.is_none() || before.booking_id == after.booking_id, "{before:?} -> {after:?}");
}
