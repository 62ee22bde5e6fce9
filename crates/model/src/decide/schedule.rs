//! Scheduled orders: start of dispatch, changes of the pickup time, and the warning before a pickup without a driver.
//! Pure. Design: docs/design/scheduled-orders.md.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};

use crate::{
    actor::Actor,
    decide::{Change, Decision, OrderRefusal},
    messages,
    order::{EventReason, OrderStatus, Snapshot},
    schedule::{PickupTimes, SchedulePolicy},
};

/// Returns whether the start of the order's dispatch has come. The first job of an order that was created in SQL may run
/// before it.
pub fn is_start_due(s: &Snapshot) -> bool {
    s.now >= s.order.dispatch_start()
}

/// Returns the first change of a scheduled order that was created in SQL. It sets the timers, and the order then waits
/// for its start.
pub fn await_start(s: &Snapshot) -> Change {
    let mut change = Change::new(s, Actor::SYSTEM);
    change.order.next_attempt_at = s.order.starts_at;
    change
}

/// Starts dispatch. `admission` is the verdict of the area, if one decided.
pub fn start_dispatch(s: &Snapshot, admission: Option<String>) -> Change {
    let mut change = Change::new(s, Actor::SYSTEM);
    let search = if s.order.partner.is_some() { OrderStatus::PendingJobId } else { OrderStatus::Dispatching };
    change.order.next_attempt_at = Some(s.now);
    change.order.admission = admission;
    change.transition_to(search, EventReason::DispatchStarted, None);
    change
}

/// Returns whether no start was refused yet.
pub fn is_first_start(s: &Snapshot) -> bool {
    s.order.next_attempt_at <= s.order.starts_at
}

/// Asks again after `pause`, because the area has no room. Only the first refusal is an event.
pub fn delay_start(s: &Snapshot, why: &str, pause: std::time::Duration) -> Change {
    let mut change = Change::new(s, Actor::SYSTEM);
    if is_first_start(s) {
        change.record_event(EventReason::StartDelayed, Some(why.to_owned()));
    }
    let pause = TimeDelta::from_std(pause).unwrap_or(TimeDelta::MAX);
    change.order.next_attempt_at = s.now.checked_add_signed(pause).or(Some(s.order.lifetime_deadline));
    change
}

/// Moves the pickup of an order whose dispatch has not started.
pub fn move_pickup(s: &Snapshot, actor: &Actor, pickup_at: DateTime<Utc>, policy: &SchedulePolicy) -> Decision {
    let mut change = Change::new(s, actor);
    match add_move(&mut change, s, pickup_at, policy) {
        Ok(true) => change.into(),
        Ok(false) => Decision::Unchanged,
        Err(refusal) => Decision::Refuse(refusal),
    }
}

/// Adds a move of the pickup to a change. Returns whether the order has another pickup time. The lifetime keeps its
/// length.
pub fn add_move(
    change: &mut Change,
    s: &Snapshot,
    pickup_at: DateTime<Utc>,
    policy: &SchedulePolicy,
) -> Result<bool, OrderRefusal> {
    let order = &s.order;
    if order.status.is_closed() {
        return Err(OrderRefusal::OrderFinished(order.status));
    }
    if order.status != OrderStatus::Scheduled || order.is_past_lifetime(s.now) {
        return Err(OrderRefusal::WrongState { status: order.status, allowed: "SCHEDULED" });
    }
    if order.pickup_at == Some(pickup_at) {
        return Ok(false);
    }
    let lifetime = order.lifetime_deadline - order.dispatch_start();
    let times = PickupTimes::new(pickup_at, policy, s.now);
    let starts_at = times.starts_at.unwrap_or(s.now);
    (change.order.pickup_at, change.order.starts_at) = (Some(pickup_at), Some(starts_at));
    change.order.warn_at = times.warn_at;
    change.order.lifetime_deadline = starts_at + lifetime;
    change.order.next_attempt_at = order.next_attempt_at.map(|_| starts_at);
    // Without a new warning, the earlier one stays open.
    if order.warn_at.is_none() && times.warn_at.is_some() {
        change.acknowledge_alerts(messages::MessageKind::ScheduledWithoutDriver, "the pickup was moved".to_owned());
    }
    let pickup = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::AutoSi, true);
    let from = order.pickup_at.map(pickup).unwrap_or_default();
    change.record_event(EventReason::PickupMoved, Some(format!("pickup {} instead of {from}", pickup(pickup_at))));
    Ok(true)
}

/// Notifies dispatchers, once, that the order has no driver shortly before its pickup.
pub fn warn_of_pickup(s: &Snapshot) -> Change {
    let mut change = Change::new(s, Actor::SYSTEM);
    change.order.warn_at = None;
    change.record_event(EventReason::NoDriverBeforePickup, None);
    let pickup_at = s.order.pickup_at.unwrap_or(s.now);
    change.notify(messages::scheduled_without_driver(&s.order, pickup_at, s.now));
    change
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{decide::timers, order::order::fixture, schedule};

    fn timers_of(s: &Snapshot) -> Vec<(String, i64)> {
        let timers = timers::derive_timers(s);
        timers.iter().map(|timer| (timer.id().to_string(), (timer.due - s.now).num_minutes())).collect()
    }

    #[track_caller]
    fn moved(s: &Snapshot, minutes: i64) -> Snapshot {
        let pickup_at = s.now + TimeDelta::minutes(minutes);
        match move_pickup(s, &Actor::SYSTEM, pickup_at, &schedule::example_policy()) {
            Decision::Change(change) => s.apply(&change),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn start_leads_to_the_first_attempt() {
        let mut s = fixture::scheduled_snapshot();
        assert!(!is_start_due(&s));
        s.now = s.order.starts_at.unwrap();
        assert!(is_start_due(&s));
        let started = s.apply(&start_dispatch(&s, None));
        assert_eq!(started.order.status, OrderStatus::Dispatching);
        assert_eq!(timers_of(&started)[0], ("dispatch:ORD-1:1".to_owned(), 0));
        s.order.partner = Some("bbd".into());
        assert_eq!(start_dispatch(&s, None).order.status, OrderStatus::PendingJobId);
    }

    #[test]
    fn full_area_delays_the_start_within_the_lifetime() {
        let mut s = fixture::scheduled_snapshot();
        s.now = s.order.starts_at.unwrap();
        let lifetime_deadline = s.order.lifetime_deadline;
        for ask in 0..3 {
            let change = delay_start(&s, "the area is full", Duration::from_secs(60));
            assert_eq!(change.events.len(), usize::from(ask == 0));
            s = s.apply(&change);
            assert_eq!(timers_of(&s)[0], ("dispatch:ORD-1:1".to_owned(), 1));
            s.now = s.order.next_attempt_at.unwrap();
        }
        assert_eq!((s.order.status, s.order.lifetime_deadline), (OrderStatus::Scheduled, lifetime_deadline));
        s.now = lifetime_deadline;
        assert!(s.order.is_past_lifetime(s.now));
    }

    #[test]
    fn moved_pickup_moves_all_timers() {
        let s = fixture::scheduled_snapshot();
        let later = moved(&s, 180);
        let due = |minutes: [i64; 3]| {
            let names = ["dispatch:ORD-1:1", "warn:ORD-1", "lifetime:ORD-1"];
            names.map(str::to_owned).into_iter().zip(minutes).collect::<Vec<_>>()
        };
        assert_eq!(timers_of(&later), due([160, 170, 190]));
        let sooner = moved(&later, 15);
        assert_eq!(timers_of(&sooner), due([0, 5, 30]), "within the lead, dispatch starts at once");
        let same = move_pickup(&s, &Actor::SYSTEM, s.order.pickup_at.unwrap(), &schedule::example_policy());
        assert_eq!(same, Decision::Unchanged);
    }

    #[test]
    fn started_order_cannot_be_moved() {
        let mut s = fixture::created_snapshot();
        s.order.pickup_at = Some(s.now);
        let refused = move_pickup(&s, &Actor::SYSTEM, s.now + TimeDelta::hours(2), &schedule::example_policy());
        let status = OrderStatus::Dispatching;
        assert_eq!(refused, Decision::Refuse(OrderRefusal::WrongState { status, allowed: "SCHEDULED" }));
    }

    #[test]
    fn warning_is_sent_once_and_settled_by_a_driver() {
        let mut s = fixture::scheduled_snapshot();
        s.now = s.order.warn_at.unwrap();
        let change = warn_of_pickup(&s);
        assert_eq!(change.messages[0].kind(), messages::SCHEDULED_WITHOUT_DRIVER);
        let warned = s.apply(&change);
        assert!(timers_of(&warned).iter().all(|(id, _)| id != "warn:ORD-1"));
        let mut assigned = Change::new(&warned, Actor::SYSTEM);
        assigned.order.driver_id = Some("D1".into());
        assigned.transition_to(OrderStatus::DriverAssigned, EventReason::AssignedByHand, None);
        assert_eq!(assigned.settles[0].kind, messages::MessageKind::ScheduledWithoutDriver);
    }

    #[test]
    fn late_move_without_a_new_warning_keeps_the_old_one() {
        let mut s = fixture::scheduled_snapshot();
        s.order.warn_at = None;
        let decide = |minutes| match move_pickup(
            &s,
            &Actor::SYSTEM,
            s.now + TimeDelta::minutes(minutes),
            &schedule::example_policy(),
        ) {
            Decision::Change(change) => change.settles.len(),
            other => panic!("{other:?}"),
        };
        assert_eq!((decide(5), decide(90)), (0, 1), "only a new warning replaces the old one");
    }

    #[test]
    fn order_of_sql_waits_from_its_first_change() {
        let mut s = fixture::scheduled_snapshot();
        s.order.next_attempt_at = Some(s.now);
        assert_eq!(timers_of(&s)[0], ("dispatch:ORD-1:1".to_owned(), 0));
        let waiting = s.apply(&await_start(&s));
        assert_eq!(timers_of(&waiting)[0], ("dispatch:ORD-1:1".to_owned(), 40));
    }
}
