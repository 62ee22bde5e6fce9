//! Model of a partner's order without servers. It applies decisions as the store would. The partner has its own state,
//! and its messages arrive late, repeated, out of order or never. The invariants are checked after each step.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use chrono::{DateTime, TimeDelta};
use model::{
    compensation,
    decide::{
        Change, Decision, actions,
        change::OrderEvent,
        money,
        requeue::{self, RequeuePermission},
        timers,
    },
    fleet::decide as fleet,
    ids::LatLng,
    order::{HoldCause, Order, OrderStatus, PaymentStatus, Snapshot},
    partner::{
        PollConfig,
        answer::{CallError, JobStatus},
        choice::PartnerChoice,
        decide::{self, PartnerRules},
        observation::{BookingPhase, Observation, ObservationSource},
    },
    policy::{DispatchPolicy, example_policy},
};

use crate::{by, superseded::SupersededTimers};

/// Odd attempts use the first partner, even ones the second.
const PARTNERS: [&str; 2] = ["bbd", "xyz"];
const SERVICE: &str = "TAXI";

const PAYMENTS: [&str; 6] = ["UNPAID", "PENDING", "PAID", "SETTLEMENT", "ODD", "REFUNDED"];
const PAUSE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Luck {
    Fine,
    /// The request takes effect, but its answer is lost.
    LostAnswer,
    NoEffect,
    /// The partner refuses a booking. Other requests fail.
    Refused,
}

#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Fires the timer with this number, due or not. Its request has this result.
    Fire(usize, Luck),
    /// Moves time to the next timer and fires it.
    FireNext(Luck),
    /// Moves time by this many seconds.
    Advance(i64),
    /// Delivers the answer with this number, or loses it with its process.
    Answer(usize, bool),
    /// The partner advances this booking; whether it finds a driver.
    Partner(usize, bool),
    /// Delivers this callback; whether it is delivered again later.
    Callback(usize, bool),
    /// A callback contains a job id that differs from this attempt's.
    OtherJobId(i32),
    /// The partner loses all its data.
    Amnesia,
    Pay(u8),
    /// Cancels by staff (true) or by the customer.
    Cancel(bool),
    Redispatch,
    /// The timer with this number was found dead.
    Hold(usize),
    Requeue,
    Refund(bool),
}

/// A request whose answer from the partner is on its way.
#[derive(Debug, Clone)]
enum Said {
    /// `None`: no answer.
    Book(i32, Option<Result<String, ()>>),
    Poll(i32, i32, Option<Option<Observation>>),
    Timeout(i64, Option<Option<Observation>>),
    /// Whether it was cancelled. The partner does not cancel with a passenger aboard.
    Cancel(i32, Option<bool>),
}

pub(super) struct Model {
    pub(super) s: Snapshot,
    policy: DispatchPolicy,
    poll: PollConfig,
    polled: bool,
    /// State of the partner's bookings, by attempt.
    pub(super) truth: BTreeMap<i32, JobStatus>,
    /// Whether the partner has lost its keys too. A repeated request may then create a second booking.
    pub(super) forgot: bool,
    pub(super) refused: BTreeSet<i32>,
    said: Vec<Said>,
    pub(super) callbacks: Vec<Observation>,
    pub(super) history: Vec<OrderEvent>,
    pub(super) refund_alerts: BTreeSet<String>,
    pub(super) superseded: SupersededTimers,
    payments: usize,
}

impl Model {
    pub(super) fn new(payment: usize, polled: bool) -> Self {
        let now = DateTime::from_timestamp_millis(1_893_484_800_000).unwrap();
        let mut order = Order::new_unpaid("ORD-1".parse().unwrap(), SERVICE.into(), LatLng::new(0.0, 0.0), now);
        order.payment_status = payment_status(payment);
        (order.status, order.partner) = (OrderStatus::PendingJobId, Some(PARTNERS[0].into()));
        let policy = example_policy();
        Self {
            s: Snapshot::from_order(order, now),
            policy,
            poll: PollConfig::default(),
            polled,
            truth: BTreeMap::new(),
            forgot: false,
            refused: BTreeSet::new(),
            said: Vec::new(),
            callbacks: Vec::new(),
            history: Vec::new(),
            refund_alerts: BTreeSet::new(),
            superseded: SupersededTimers::default(),
            payments: 0,
        }
    }

    pub(super) fn take(&mut self, step: Step) {
        let s = &self.s;
        let decision = match step {
            Step::Fire(n, luck) => return self.fire(n, luck),
            Step::FireNext(luck) => return self.fire_next(luck),
            Step::Advance(secs) => return self.s.now += TimeDelta::seconds(secs),
            Step::Answer(n, arrives) => return self.answer(n, arrives),
            Step::Partner(n, finds) => return self.partner(n, finds),
            Step::Callback(n, again) => {
                let Some(n) = pick(n, self.callbacks.len()) else { return };
                let callback = if again { self.callbacks[n].clone() } else { self.callbacks.swap_remove(n) };
                self.decide(|s, rules| decide::apply_observation(s, &callback, rules));
                return;
            }
            Step::OtherJobId(attempt) => {
                let known = s.booking_of_attempt(attempt).and_then(|b| b.booking_id.clone());
                let Some(booking_id) = known else { return };
                let job_id = Some("J-other".to_owned());
                let o = observation(
                    ObservationSource::Callback,
                    attempt,
                    booking_id,
                    job_id,
                    None,
                    BookingPhase::Searching,
                );
                self.decide(|s, rules| decide::apply_observation(s, &o, rules));
                return;
            }
            Step::Amnesia => {
                self.forgot = true;
                return self.truth.clear();
            }
            Step::Pay(n) => {
                self.payments += 1;
                money::record_payment(
                    s,
                    &by("producer:x"),
                    &format!("P-{}", self.payments),
                    &payment_status(usize::from(n)),
                )
            }
            Step::Cancel(staff) => actions::cancel_order(s, &by(if staff { "operator:x" } else { "producer:x" }), None),
            Step::Redispatch => actions::redispatch_order(s, &by("operator:x")),
            Step::Hold(n) => {
                let derived = timers::derive_timers(s);
                let Some(n) = pick(n, derived.len()).filter(|_| !s.order.held_for_review) else { return };
                let mut change = Change::new(s, by("reconciler"));
                let dead = derived[n].id();
                change.hold_for_review(s, HoldCause::DeadTimer(dead.clone()), HoldCause::dead_timer_reason(dead));
                change.into()
            }
            Step::Requeue => {
                let Some(dead) = s.order.dead_timer() else { return };
                match requeue::check_timer(s, &dead) {
                    RequeuePermission::Held => requeue::requeue_change(s, &dead, &by("operator:x"), None).into(),
                    _ => return,
                }
            }
            Step::Refund(done) if done => money::finish_refund(s, &by("support:x"), None),
            Step::Refund(_) => money::start_refund(s, &by("support:x"), None),
        };
        self.take_decision(decision);
    }

    /// Returns whether no message from the partner is on its way.
    pub(super) fn is_silent(&self) -> bool {
        self.said.is_empty() && self.callbacks.is_empty()
    }

    fn decide(&mut self, decide: impl FnOnce(&Snapshot, PartnerRules) -> Decision) {
        let decision = decide(&self.s, PartnerRules { dispatch: &self.policy, poll: &self.poll, takes_details: false });
        self.take_decision(decision);
    }

    fn take_decision(&mut self, decision: Decision) {
        if let Decision::Change(change) = decision {
            self.apply(*change);
        }
    }

    /// Fires a timer as `orders::step` does: superseded, past the lifetime, not due, or decided.
    fn fire(&mut self, n: usize, luck: Luck) {
        let derived = timers::derive_timers(&self.s);
        let Some(timer) = pick(n, derived.len()).map(|n| &derived[n]) else { return };
        if self.s.order.is_past_lifetime(self.s.now) {
            return self.apply(fleet::end_lifetime(&self.s));
        }
        if !timer.is_due(self.s.now) {
            return;
        }
        let number = timer.id().key().rsplit(':').next().unwrap().parse().unwrap_or(0);
        match timer.id().kind() {
            "dispatch" => {
                if self.s.booking_of_attempt(number).is_none() {
                    let partner = PARTNERS[usize::from(number % 2 == 0)];
                    self.apply(decide::start_attempt(&self.s, &PartnerChoice::only(partner.into())));
                }
                let answer = self.book(number, luck);
                self.said.push(Said::Book(number, answer));
            }
            "poll" => {
                let attempt = self.s.live_booking().expect("a polled order has a booking").attempt_no;
                let answer = self.ask(attempt, luck);
                self.said.push(Said::Poll(attempt, number, answer));
            }
            "timeout" => {
                let answer = self.ask(number, luck);
                self.said.push(Said::Timeout(self.s.order.version, answer));
            }
            "cancel-booking" if self.s.booking_of_attempt(number).unwrap().booking_id.is_none() => {
                let answer = self.book(number, luck);
                self.said.push(Said::Book(number, answer));
            }
            "cancel-booking" => {
                let answer = self.cancel(number, luck);
                self.said.push(Said::Cancel(number, answer));
            }
            "lifetime" => self.apply(fleet::end_lifetime(&self.s)),
            "compensate" => self.apply(compensation::compensate_order(&self.s)),
            other => panic!("no handler performs {other}"),
        }
    }

    fn fire_next(&mut self, luck: Luck) {
        let derived = timers::derive_timers(&self.s);
        let Some((n, timer)) = derived.iter().enumerate().min_by_key(|(_, timer)| timer.due) else { return };
        self.s.now = self.s.now.max(timer.due);
        self.fire(n, luck);
    }

    /// Applies an answer as the handlers do.
    fn answer(&mut self, n: usize, arrives: bool) {
        let Some(n) = pick(n, self.said.len()) else { return };
        let said = self.said.swap_remove(n);
        if !arrives {
            return;
        }
        let (now, version, grace) = (self.s.now, self.s.order.version, TimeDelta::seconds(60));
        let polled = self.polled;
        match said {
            Said::Book(attempt, Some(Ok(id))) => {
                self.decide(|s, rules| decide::booking_succeeded(s, attempt, &id, polled, rules));
            }
            Said::Book(attempt, Some(Err(()))) => {
                self.decide(|s, rules| decide::booking_refused(s, attempt, "no", PAUSE, rules));
            }
            Said::Poll(attempt, polls, Some(Some(o))) => self.decide(|s, rules| {
                assert_eq!(o.attempt_no, attempt);
                decide::poll_answered(s, &o, polls, PAUSE, rules)
            }),
            Said::Poll(attempt, polls, answer) => self.decide(|s, rules| {
                let old =
                    s.booking_of_attempt(attempt).is_some_and(|b| b.booked_at.is_some_and(|at| now >= at + grace));
                match if answer.is_some() && old {
                    decide::booking_not_found(s, attempt, rules)
                } else {
                    Decision::Unchanged
                } {
                    Decision::Unchanged => decide::poll_without_news(s, attempt, polls, PAUSE, rules),
                    lost => lost,
                }
            }),
            Said::Timeout(_, Some(Some(o))) => self.decide(|s, rules| decide::attempt_timed_out_unless(s, &o, rules)),
            Said::Timeout(at, Some(None)) if at == version => {
                self.decide(|s, rules| decide::attempt_timed_out(s, rules).into());
            }
            Said::Cancel(attempt, Some(true)) => self.decide(|s, _| decide::cancel_confirmed(s, attempt)),
            Said::Cancel(attempt, Some(false)) => self.decide(|s, _| decide::cancel_refused(s, attempt, "aboard")),
            Said::Book(attempt, None) => self.decide(|s, _| decide::booking_unanswered(s, attempt, "no answer", PAUSE)),
            Said::Cancel(attempt, None) => {
                let error = CallError::Transient("no answer".to_owned());
                self.decide(|s, _| decide::cancel_missed(s, attempt, &error, PAUSE));
            }
            Said::Timeout(..) => {}
        }
    }
}

pub(super) fn observation(
    via: ObservationSource,
    attempt_no: i32,
    booking_id: String,
    job_id: Option<String>,
    driver_id: Option<String>,
    phase: BookingPhase,
) -> Observation {
    Observation { via, attempt_no, booking_id: Some(booking_id), job_id, driver_id, phase }
}

fn payment_status(n: usize) -> PaymentStatus {
    PAYMENTS[n % PAYMENTS.len()].to_owned().try_into().unwrap()
}

pub(super) fn pick(n: usize, of: usize) -> Option<usize> {
    (of > 0).then(|| n % of)
}
