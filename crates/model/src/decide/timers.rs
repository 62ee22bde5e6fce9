//! The jobs an order must have, derived from its row.
//!
//! A job is only a hint; the row decides. A job that is not in [`derive_timers`] is superseded and does nothing. A job
//! that is in it but missing from Redis is restored by the first process that notices. Creation, handlers, the
//! reconciler and the checker all use this function.

use std::time::Duration;

use chrono::{DateTime, Utc};
use job_contract::{Job, JobId, NewJob};
use jobs::{
    ApplyCallback, CancelBooking, CompensateOrder, DispatchOrder, EscalateAlert, ExpireAttempt, ExpireOrder, OrderId,
    PeriodicTick, PollPartner, RefundOrder, RemindDispatchers, ReportStaleTrip, RunCycle, RunPlan, SendDetails,
    SendNotification, SettleTransaction, StartWave, SubjectId, SubmitOtp, WarnOfPickup,
};

use crate::{
    messages,
    order::{BookingState, Order, OrderDeadlines, OrderStatus, PendingAlert, PendingMessage, Snapshot},
};

/// A job that must exist, and the deadline in its row.
#[derive(Debug, Clone, PartialEq)]
pub struct OrderTimer {
    pub job: NewJob,
    pub due: DateTime<Utc>,
}

impl OrderTimer {
    fn new<J: Job>(job: &J, due: DateTime<Utc>, now: DateTime<Utc>) -> Self {
        Self { job: NewJob::after(job, time_until(due, now)), due }
    }

    pub fn id(&self) -> &JobId {
        &self.job.id
    }

    pub fn is_due(&self, now: DateTime<Utc>) -> bool {
        self.due <= now
    }
}

/// Returns the order of a job; `None` for periodic jobs, plans, bindings and messages, and for unknown jobs.
pub fn order_of(job: &JobId) -> Option<OrderId> {
    // Jobs of schedules, plans and bindings have no order. The subject of a message is in its row.
    let others = [
        PeriodicTick::KIND,
        RunPlan::KIND,
        RunCycle::KIND,
        SubmitOtp::KIND,
        SettleTransaction::KIND,
        SendNotification::KIND,
    ];
    if others.contains(&job.kind()) {
        return None;
    }
    job.key().split(':').next()?.parse().ok()
}

/// Returns the time until `due`; zero after it has passed.
pub fn time_until(due: DateTime<Utc>, now: DateTime<Utc>) -> Duration {
    (due - now).to_std().unwrap_or_default()
}

/// Returns the timers of the order's own row.
pub fn order_timers(order: &Order, now: DateTime<Utc>) -> Vec<OrderTimer> {
    deadline_timers(&OrderDeadlines::from(order), now)
}

/// Returns the same timers as [`order_timers`], from the columns they depend on.
pub fn deadline_timers(order: &OrderDeadlines, now: DateTime<Utc>) -> Vec<OrderTimer> {
    let mut timers = Vec::new();
    if order.held_for_review {
        return timers;
    }
    let id = || order.id.clone();
    let attempt = order.attempt_no.unsigned_abs();
    if matches!(order.status, OrderStatus::Dispatching | OrderStatus::PendingJobId | OrderStatus::Assigned) {
        if let Some(due) = order.attempt_deadline {
            timers.push(OrderTimer::new(&ExpireAttempt { order: id(), attempt }, due, now));
        }
        if let Some(due) = order.next_wave_at {
            let wave = order.wave_no.unsigned_abs() + 1;
            timers.push(OrderTimer::new(&StartWave { order: id(), attempt, wave }, due, now));
        }
        if let Some(due) = order.attempt_due(now) {
            timers.push(OrderTimer::new(&DispatchOrder { order: id(), attempt: attempt + 1 }, due, now));
        }
    }
    if order.status == OrderStatus::Scheduled
        && let Some(due) = order.next_attempt_at
    {
        timers.push(OrderTimer::new(&DispatchOrder { order: id(), attempt: 1 }, due, now));
    }
    if let Some(due) = order.warn_at.filter(|_| order.status.lacks_driver()) {
        timers.push(OrderTimer::new(&WarnOfPickup { order: id() }, due, now));
    }
    if let Some(due) = order.next_poll_at {
        timers.push(OrderTimer::new(&PollPartner { order: id(), number: order.poll_no.unsigned_abs() + 1 }, due, now));
    }
    if order.status.lacks_driver() && !order.lifetime_waived {
        timers.push(OrderTimer::new(&ExpireOrder { order: id() }, order.lifetime_deadline, now));
    }
    // A trip within its deadline has no timer. The timer is derived after the deadline, and the reconciler enqueues it.
    if let Some(due) = order.trip_deadline.filter(|due| *due <= now && order.status.occupies_driver()) {
        timers.push(OrderTimer::new(&ReportStaleTrip { order: id() }, due, now));
    }
    if order.status == OrderStatus::Compensating {
        timers.push(OrderTimer::new(&CompensateOrder { order: id() }, order.updated_at, now));
    }
    timers
}

/// Returns the timer of a booking: the next request to book, to cancel, or to send changed contents.
pub fn booking_timer(
    order: &OrderId,
    attempt_no: i32,
    state: BookingState,
    due: DateTime<Utc>,
    now: DateTime<Utc>,
) -> OrderTimer {
    let (order, attempt) = (order.clone(), attempt_no.unsigned_abs());
    match state {
        BookingState::CancelWanted => OrderTimer::new(&CancelBooking { order, attempt }, due, now),
        BookingState::Booked => OrderTimer::new(&SendDetails { order, attempt }, due, now),
        _ => OrderTimer::new(&DispatchOrder { order, attempt }, due, now),
    }
}

/// Returns the timer of a callback that waits to be applied.
pub fn callback_timer(order: &OrderId, inbox_id: i64, received_at: DateTime<Utc>, now: DateTime<Utc>) -> OrderTimer {
    OrderTimer::new(&ApplyCallback { order: order.clone(), inbox_id }, received_at, now)
}

/// Returns the timer of the order's refund at the payment service.
pub fn refund_timer(order: &OrderId, due: DateTime<Utc>, now: DateTime<Utc>) -> OrderTimer {
    OrderTimer::new(&RefundOrder { order: order.clone() }, due, now)
}

pub fn message_timer(subject: SubjectId, outbox_id: i64, due: DateTime<Utc>, now: DateTime<Utc>) -> OrderTimer {
    OrderTimer::new(&SendNotification { subject, outbox_id }, due, now)
}

pub fn alert_timer(order: &OrderId, alert: &PendingAlert, now: DateTime<Utc>) -> OrderTimer {
    let (order, alert_id, due) = (order.clone(), alert.id, alert.next_escalation_at);
    if messages::is_for_dispatchers(&alert.kind) {
        OrderTimer::new(&RemindDispatchers { order, alert_id }, due, now)
    } else {
        OrderTimer::new(&EscalateAlert { order, alert_id }, due, now)
    }
}

/// Returns the timers of undelivered messages and unacknowledged alerts.
pub fn message_timers(
    order: &OrderId,
    messages: &[PendingMessage],
    alerts: &[PendingAlert],
    now: DateTime<Utc>,
) -> Vec<OrderTimer> {
    let messages = messages.iter().map(|m| message_timer(order.clone().into(), m.id, m.next_attempt_at, now));
    messages.chain(alerts.iter().map(|a| alert_timer(order, a, now))).collect()
}

/// Returns every job that must exist for this order: its own timers, open bookings, callbacks to apply, its refund,
/// undelivered messages and unacknowledged alerts.
pub fn derive_timers(snapshot: &Snapshot) -> Vec<OrderTimer> {
    let (order, now) = (&snapshot.order.id, snapshot.now);
    let mut all = order_timers(&snapshot.order, now);
    all.extend(
        snapshot.bookings.iter().filter_map(|b| Some(booking_timer(order, b.attempt_no, b.state, b.next_try_at?, now))),
    );
    all.extend(snapshot.callbacks.iter().map(|c| callback_timer(order, c.id, c.received_at, now)));
    let refund_at = snapshot.refund_at.filter(|_| snapshot.order.status == OrderStatus::RefundPending);
    all.extend(refund_at.map(|due| refund_timer(order, due, now)));
    all.extend(message_timers(order, &snapshot.messages, &snapshot.alerts, now));
    all
}

pub fn derive_jobs(snapshot: &Snapshot) -> Vec<NewJob> {
    derive_timers(snapshot).into_iter().map(|t| t.job).collect()
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;
    use crate::order::order::fixture;

    fn ids(snapshot: &Snapshot) -> Vec<String> {
        derive_timers(snapshot).iter().map(|t| t.id().to_string()).collect()
    }

    #[test]
    fn new_order_has_attempt_and_lifetime_timers() {
        assert_eq!(ids(&fixture::created_snapshot()), ["dispatch:ORD-1:1", "lifetime:ORD-1"]);
    }

    #[test]
    fn running_attempt_has_timeout_and_offer_timers() {
        let mut s = fixture::created_snapshot();
        s.order.attempt_no = 3;
        s.order.next_attempt_at = None;
        s.order.attempt_deadline = Some(s.now + TimeDelta::seconds(120));
        s.messages = vec![PendingMessage { id: 7, next_attempt_at: s.now }];
        assert_eq!(ids(&s), ["timeout:ORD-1:3", "lifetime:ORD-1", "notify:ORD-1:7"]);
        assert_eq!(derive_timers(&s)[0].job.delay, Duration::from_secs(120));
    }

    #[test]
    fn order_awaiting_dispatcher_keeps_its_lifetime() {
        let mut s = fixture::created_snapshot();
        s.order.status = OrderStatus::Pending;
        s.order.next_attempt_at = None;
        assert_eq!(ids(&s), ["lifetime:ORD-1"]);
        s.order.lifetime_waived = true;
        assert_eq!(ids(&s), Vec::<String>::new());
    }

    #[test]
    fn scheduled_order_has_start_warning_and_lifetime_timers() {
        let s = fixture::scheduled_snapshot();
        let due_min = derive_timers(&s).iter().map(|t| (t.due - s.now).num_minutes()).collect::<Vec<_>>();
        assert_eq!(ids(&s), ["dispatch:ORD-1:1", "warn:ORD-1", "lifetime:ORD-1"]);
        assert_eq!(due_min, [40, 50, 70], "pickup in an hour, a lead of 20 minutes, a warning 10 minutes before");
    }

    #[test]
    fn assigned_driver_stops_the_warning() {
        let mut s = fixture::scheduled_snapshot();
        (s.order.status, s.order.driver_id) = (OrderStatus::DriverAssigned, Some("D1".into()));
        assert_eq!(ids(&s), Vec::<String>::new());
    }

    #[test]
    fn held_order_has_no_timers() {
        let mut s = fixture::created_snapshot();
        s.order.held_for_review = true;
        assert_eq!(ids(&s), Vec::<String>::new());
    }

    #[test]
    fn no_timer_outlives_dispatch() {
        for status in OrderStatus::ALL.into_iter().filter(|s| s.is_closed() || s.occupies_driver()) {
            let mut s = fixture::created_snapshot();
            s.order.status = status;
            assert_eq!(ids(&s), Vec::<String>::new(), "{status}");
        }
    }

    #[test]
    fn pending_refund_keeps_its_timer_until_refunded() {
        let mut s = fixture::created_snapshot();
        (s.order.status, s.order.next_attempt_at, s.refund_at) = (OrderStatus::RefundPending, None, Some(s.now));
        assert_eq!(ids(&s), ["refund:ORD-1"]);
        s.order.status = OrderStatus::Refunded;
        assert_eq!(ids(&s), Vec::<String>::new());
    }

    #[test]
    fn alert_timer_ignores_the_order_state() {
        let mut s = fixture::created_snapshot();
        s.order.held_for_review = true;
        let alert = |id, kind: &str| PendingAlert { id, kind: kind.to_owned(), next_escalation_at: s.now };
        s.alerts = vec![alert(7, messages::TIMER_DEAD), alert(8, messages::DISPATCH_FAILED)];
        assert_eq!(ids(&s), ["escalate:ORD-1:7", "remind:ORD-1:8"]);
    }
}
