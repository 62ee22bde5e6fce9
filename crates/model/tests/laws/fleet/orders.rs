//! Model of an order without a database. It applies decisions as the store would, and the invariants are checked after
//! each step.

use chrono::{DateTime, TimeDelta, Utc};
use model::{
    compensation,
    decide::{Change, Decision, actions, change::OrderEvent, review, timers},
    fleet::decide,
    ids::{DriverId, LatLng, OfferId},
    messages::MANUAL_REFUND_REQUIRED,
    order::{EventReason, HoldCause, Offer, OfferState, Order, OrderStatus, Snapshot, state},
    policy::{DispatchPolicy, ExhaustionAction, Wave, example_policy},
    ranking::{DriverRanking, RankedDriver},
};
use uuid::Uuid;

use crate::{by, superseded::SupersededTimers};

/// Distances of the four drivers from the pickup.
const DISTANCES_M: [f64; 4] = [100.0, 1_500.0, 1_600.0, 4_500.0];

#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Fires the timer with this number, due or not.
    Fire(usize),
    /// Moves time to the next timer and fires it.
    FireNext,
    /// Moves time by this many seconds.
    Advance(i64),
    /// The driver of this offer, live or not, accepts.
    Accept(u8),
    Decline(u8),
    /// The offer cannot be delivered, or its driver took another order.
    Withdraw(u8),
    PickUp,
    Complete,
    DriverCancel,
    Release,
    /// Cancels by staff or by the customer.
    Cancel(bool),
    Assign(u8),
    Redispatch,
    /// A timer was found dead.
    Hold,
    /// Staff hold the order.
    HoldByHand,
    /// Staff resume the order, whatever the cause of its hold.
    Resume,
    /// Sets whether this driver is free.
    Free(u8, bool),
}

pub(super) struct Model {
    s: Snapshot,
    policy: DispatchPolicy,
    free: [bool; 4],
    history: Vec<OrderEvent>,
    refund_alerts: usize,
    superseded: SupersededTimers,
}

impl Model {
    pub(super) fn new(alert: bool, keeps_lifetime: bool, waves: Vec<Wave>, payment: &str) -> Self {
        let now = DateTime::from_timestamp_millis(1_893_484_800_000).unwrap();
        let mut order = Order::new_unpaid("ORD-1".parse().unwrap(), "RIDE".into(), LatLng::new(0.0, 0.0), now);
        order.payment_status = payment.to_owned().try_into().unwrap();
        let policy = DispatchPolicy {
            waves,
            exhausted: if alert { ExhaustionAction::Alert } else { ExhaustionAction::SearchAgain },
            pending_keeps_lifetime: keeps_lifetime,
            ..example_policy()
        };
        let s = Snapshot::from_order(order, now);
        Self {
            s,
            policy,
            free: [true; 4],
            history: Vec::new(),
            refund_alerts: 0,
            superseded: SupersededTimers::default(),
        }
    }

    pub(super) fn take(&mut self, step: Step) {
        let s = &self.s;
        let offer = |n: u8| s.offers.get(usize::from(n) % s.offers.len().max(1));
        let driver = s.order.driver_id.clone().unwrap_or_default();
        let decision = match step {
            Step::Fire(n) => return self.fire(n),
            Step::FireNext => return self.fire_next(),
            Step::Advance(secs) => {
                self.s.now += TimeDelta::seconds(secs);
                return;
            }
            Step::Free(n, free) => {
                self.free[usize::from(n)] = free;
                return;
            }
            Step::Accept(n) => offer(n).map(|o| actions::accept_offer(s, &o.driver_id, o.id)),
            Step::Decline(n) => offer(n).map(|o| actions::decline_offer(s, &o.driver_id, o.id, None)),
            Step::Withdraw(n) => offer(n).map(|o| actions::withdraw_offer(s, o.id, "why")),
            Step::DriverCancel => Some(actions::cancel_by_driver(s, &driver, None)),
            Step::Release => Some(actions::release_driver(s, &by("operator:x"), None)),
            Step::PickUp => Some(actions::record_pickup(s, &driver)),
            Step::Complete => Some(actions::complete_trip(s, &driver)),
            Step::Cancel(staff) => {
                Some(actions::cancel_order(s, &by(if staff { "operator:x" } else { "producer:x" }), None))
            }
            Step::Assign(n) => Some(actions::assign_driver(s, &by("operator:x"), &format!("D{n}").into())),
            Step::Redispatch => Some(actions::redispatch_order(s, &by("operator:x"))),
            Step::HoldByHand => Some(review::hold_order(s, &by("operator:x"), "wait")),
            Step::Resume => Some(review::resume_order(s, &by("operator:x"), "go on")),
            Step::Hold => {
                let has_timers = !timers::order_timers(&s.order, s.now).is_empty();
                has_timers.then(|| {
                    let mut change = Change::new(s, by("reconciler"));
                    change.hold_for_review(s, HoldCause::Other, "a timer is dead");
                    change.into()
                })
            }
        };
        if let Some(Decision::Change(change)) = decision {
            self.apply(*change);
        }
    }

    /// Fires a timer as `orders::step` does: superseded, past the lifetime, not due, or decided.
    fn fire(&mut self, n: usize) {
        let s = &self.s;
        let derived = timers::derive_timers(s);
        let Some(timer) = derived.get(n) else { return };
        let change = if s.order.is_past_lifetime(s.now) {
            decide::end_lifetime(s)
        } else if !timer.is_due(s.now) {
            return;
        } else {
            match timer.id().kind() {
                "dispatch" if self.ranking().ranked.is_empty() && self.unwritten_until().is_some() => {
                    return self.wait_on();
                }
                "dispatch" => decide::start_attempt(s, self.ranking(), &self.policy),
                "timeout" => decide::time_out_attempt(s, self.ranking(), &self.policy),
                "wave" => decide::start_wave(s, self.ranking(), &self.policy),
                "lifetime" => decide::end_lifetime(s),
                _ => compensation::compensate_order(s),
            }
        };
        self.apply(change);
    }

    /// Returns how long the order waits without a write if this search finds no driver either.
    fn unwritten_until(&self) -> Option<DateTime<Utc>> {
        decide::next_unwritten_search(&self.s, &self.policy)
    }

    /// Continues the wait as `fleet::waiting_orders` does: the row stays, and its timer is due again after the pause.
    fn wait_on(&mut self) {
        let next = self.unwritten_until().expect("it repeats");
        assert!(next > self.s.now && next <= self.s.now + TimeDelta::minutes(1), "{:?}", self.s.order);
        assert!(decide::awaits_driver(&self.s), "{:?}", self.s.order);
        self.s.now = next;
        let due = timers::order_timers(&self.s.order, next).into_iter().map(|timer| timer.due).min();
        assert!(due <= Some(next), "the next search is due at the announced time");
    }

    fn fire_next(&mut self) {
        let derived = timers::derive_timers(&self.s);
        let Some((n, timer)) = derived.iter().enumerate().min_by_key(|(_, timer)| timer.due) else { return };
        self.s.now = self.s.now.max(timer.due);
        self.fire(n);
    }

    /// Ranks drivers as `orders::fleet::candidates` does: free, not asked in this round, never declined, and never had
    /// the order.
    fn ranking(&self) -> DriverRanking {
        let asked = |driver: &DriverId| {
            let declined = |o: &&Offer| o.state == OfferState::Declined || o.round == self.s.order.round;
            let was_asked = self.s.offers.iter().filter(declined).any(|o| o.driver_id == *driver);
            was_asked || self.s.order.former_drivers.contains(driver)
        };
        let drivers = DISTANCES_M.into_iter().enumerate().filter(|(n, _)| self.free[*n]);
        let drivers = drivers.map(|(n, distance_m)| (DriverId::from(format!("D{n}")), distance_m));
        let ranked = drivers.filter(|(driver, _)| !asked(driver)).map(|(driver_id, distance_m)| RankedDriver {
            driver_id,
            distance_m,
            idle_min: 0.0,
            live_offers: 0,
            score: distance_m,
        });
        DriverRanking { ranked: ranked.collect(), excluded: Vec::new() }
    }

    /// Applies a change with the same function as `Orders::change`. Creates offers as the store does if all drivers are
    /// free.
    fn apply(&mut self, change: Change) {
        assert_eq!((change.version, change.at), (self.s.order.version, self.s.now));
        let mut at = self.s.order.status;
        for event in &change.events {
            assert_eq!(event.from, at, "the chain of states is unbroken");
            assert!(state::is_transition_allowed(Some(event.from), event.to), "{} -> {}", event.from, event.to);
            at = event.to;
        }
        assert_eq!(at, change.order.status, "the last event leads to the row's state");
        assert!(!change.events.is_empty() || self.repeats_empty_search(&change), "a change has an event");
        for end in &change.offers {
            let known = self.s.offers.iter().find(|o| o.id == end.offer.id).unwrap();
            let given_back = known.state == OfferState::Accepted && end.to == OfferState::Withdrawn;
            assert!(known.state == OfferState::Offered || given_back, "an offer ends once, not as {:?}", end.to);
        }
        let before = self.s.clone();
        self.s = self.s.apply(&change);
        self.superseded.record_change(&before, &self.s);
        if let Some(new) = &change.new_offers {
            for ranked in new.ranked.iter().take(usize::from(new.at_once)) {
                self.s.offers.push(Offer {
                    id: OfferId::from_uuid(Uuid::now_v7()),
                    attempt_no: change.order.attempt_no,
                    wave: new.wave,
                    round: change.order.round,
                    driver_id: ranked.driver_id.clone(),
                    state: OfferState::Offered,
                    offered_at: change.at,
                    expires_at: new.expires_at,
                });
            }
        }
        self.refund_alerts += change.messages.iter().filter(|m| m.kind() == MANUAL_REFUND_REQUIRED).count();
        self.history.extend(change.events);
    }

    /// Returns whether this change only counts a round, because the previous search found no driver either and is in
    /// the history.
    fn repeats_empty_search(&self, change: &Change) -> bool {
        let is_search =
            |event: &&OrderEvent| matches!(event.reason, EventReason::AttemptStarted | EventReason::SearchAgain);
        let last_search = self.history.iter().rev().find(is_search);
        last_search.is_some_and(|event| event.reason == EventReason::SearchAgain)
            && change.order.round == self.s.order.round + 1
            && change.order.next_attempt_at > Some(self.s.now)
            && change.new_offers.is_none()
            && change.offers.is_empty()
            && change.messages.is_empty()
    }

    /// Checks the invariants of every state.
    pub(super) fn check(&self) {
        let (o, now) = (&self.s.order, self.s.now);
        // The CHECK constraints of the table.
        assert!(o.driver_id.is_some() || !(o.status.occupies_driver() || o.status == OrderStatus::Completed));
        assert!(o.attempt_deadline.is_none() || o.next_attempt_at.is_none());
        assert_eq!(o.held_for_review, o.held_reason.is_some());
        assert_eq!(o.closed_at.is_some(), o.status.is_closed());
        assert!(!o.held_for_review || !o.status.is_closed(), "a closed order is not held");

        let live: Vec<_> = self.s.offers.iter().filter(|f| f.state == OfferState::Offered).collect();
        let asked_by_now: u16 =
            self.policy.waves.iter().take(o.wave_no.unsigned_abs() as usize).map(|wave| wave.ask).sum();
        assert!(live.len() <= usize::from(asked_by_now), "{live:?}");
        assert!(o.next_wave_at.is_none() || o.next_wave_at <= o.attempt_deadline, "a wave starts within its attempt");
        for offer in &live {
            assert_eq!(
                (o.status, o.held_for_review, o.attempt_no),
                (OrderStatus::Dispatching, false, offer.attempt_no)
            );
            assert_eq!(o.attempt_deadline, Some(offer.expires_at), "the attempt ends with its offers");
            assert!(!o.former_drivers.contains(&offer.driver_id), "a former driver is not asked again");
            assert!(offer.expires_at <= o.lifetime_deadline, "an offer does not outlive its order");
        }
        assert!(self.s.offers.iter().filter(|f| f.state == OfferState::Accepted).count() <= 1);
        self.check_attempts();

        let timers = timers::order_timers(o, now);
        if o.status.is_closed() || o.held_for_review || o.status.occupies_driver() {
            assert_eq!(timers, [], "no timer in this state");
        } else {
            assert!(!timers.is_empty() || o.lifetime_waived, "no timer left: {o:?}");
        }
        if o.status == OrderStatus::Dispatching && !o.held_for_review {
            assert!(o.attempt_deadline.is_some() || o.next_attempt_at.is_some(), "the search goes on: {o:?}");
        }
        let cancelled = matches!(
            o.status,
            OrderStatus::CancelledByUser | OrderStatus::CancelledByDriver | OrderStatus::CancelledBySystemAfterPayment
        );
        let owed = usize::from(cancelled && o.owes_refund());
        assert_eq!(self.refund_alerts, owed, "{} {}", o.status, o.payment_status);
        assert!(o.status != OrderStatus::CancelledBySystem || !o.owes_refund(), "paid, without an alert");
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
        assert_eq!(self.s.order.attempt_no, started);
        let goes_on = self.s.live_offer().is_some() || self.s.order.next_wave_at.is_some();
        assert!(!running || goes_on, "only a live offer or a next wave keeps an attempt running");
    }

    /// Runs all timers until none is left.
    pub(super) fn let_time_pass(&mut self) {
        for _ in 0..500 {
            if timers::order_timers(&self.s.order, self.s.now).is_empty() {
                return;
            }
            self.fire_next();
            self.check();
        }
    }

    /// Checks the final state: the order has ended, has a driver or is held.
    pub(super) fn check_at_rest(&self) {
        let o = &self.s.order;
        assert_eq!(timers::order_timers(o, self.s.now + TimeDelta::days(1)), []);
        let waits_for_a_person = o.held_for_review || (o.status == OrderStatus::Pending && o.lifetime_waived);
        assert!(o.status.is_closed() || o.status.occupies_driver() || waits_for_a_person, "{o:?}");
        let lifetime_end = |e: &&OrderEvent| e.reason == EventReason::LifetimeTimeout;
        assert!(self.history.iter().filter(lifetime_end).count() <= 1);
    }
}
