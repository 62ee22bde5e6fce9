//! Alerts for desks: their number, and alerts that are acknowledged without a person.

use std::time::Duration;

use desk::dead_letters::decide::{self, DecisionAuthor, DecisionOutcome};
use maintenance::recovery::reconciler;
use model::{
    decide::{Change, Decision, actions, money, requeue::RequeueRefusal},
    messages::{self, ESCALATION, MANUAL_REFUND_REQUIRED, STALE_TRIP, UNEXPECTED_STATE},
    order::{HoldCause, OrderStatus, Snapshot},
};
use notify::alerts::{self, AlertFilter, AlertSelection};
use queue::{JobId, Outcome};
use test_support::{Counting, Scrape, TestApp, by, secs};

const HOUR: u64 = 3600;

/// Returns the reasons of open alerts of this kind.
async fn open(t: &TestApp, kind: &str) -> Vec<String> {
    let filter = AlertFilter { open: true, kind: Some(kind.to_owned()), limit: 10, ..AlertFilter::default() };
    let open = alerts::list_alerts(&t.app.core.db, &filter).await.unwrap();
    open.into_iter().map(|alert| alert.payload["reason"].as_str().unwrap_or_default().to_owned()).collect()
}

async fn reconcile(t: &TestApp) {
    t.advance(secs(4)).await;
    // Boxed because the future of a debug build is too large for the stack of a test.
    Box::pin(reconciler::reconcile_once(&t.app.maintenance)).await.unwrap().expect("no other process reconciles");
}

/// Creates a due refund whose first escalation is dead.
async fn escalation_dead() -> TestApp {
    let t = TestApp::start().await;
    t.order_of("ORD-1", "RIDE", "PAID").await;
    t.run_for(secs(1810)).await;
    t.advance(secs(24 * HOUR)).await;
    for leased in t.take().await {
        let outcome = if leased.delivery.id.kind() == "escalate" {
            Outcome::Dead("a bug".to_owned())
        } else {
            t.perform(&leased).await
        };
        t.settle(&leased, outcome).await;
    }
    reconcile(&t).await;
    t
}

// Fault F13
#[tokio::test]
async fn dead_escalation_is_counted_until_requeued() {
    let counting = Counting::start();
    let t = escalation_dead().await;
    let (address, _shown) = counting.shown(&t.app).await;
    let given_up = async || {
        let scrape =
            Scrape::of(&reqwest::get(format!("http://{address}/metrics")).await.unwrap().text().await.unwrap());
        scrape.value("dispatchq_alerts_given_up")
    };
    assert_eq!(given_up().await, 1.0);
    let alert = alerts::load_alert(&t.app.core.db, 1).await.unwrap().unwrap();
    assert!(alert.gave_up_at.is_some() && alert.next_escalation_at.is_some(), "{alert:?}");
    t.run_for(secs(24 * HOUR)).await;
    assert_eq!(t.messages_of("ORD-1", ESCALATION).await, 0, "its job is dead");
    t.assert_sound().await;

    let job = JobId::parse("escalate:ORD-1:1").unwrap();
    let by = DecisionAuthor { who: by("operator:test"), why: None };
    assert_eq!(decide::preview_requeue(&t.app.core, &job).await.unwrap(), DecisionOutcome::Done);
    assert_eq!(decide::requeue_job(&t.app.desk, &job, &by).await.unwrap(), DecisionOutcome::Done);
    t.run_due().await;
    assert_eq!(t.messages_of("ORD-1", ESCALATION).await, 1);
    t.run_for(secs(4 * HOUR)).await;
    assert_eq!(t.messages_of("ORD-1", ESCALATION).await, 2, "and so on");
    assert_eq!(given_up().await, 0.0);
    assert_eq!(decide::requeue_job(&t.app.desk, &job, &by).await.unwrap(), DecisionOutcome::NotDead);
    t.assert_sound().await;
}

// Fault F13
#[tokio::test]
async fn escalation_requeues_until_alert_is_acknowledged() {
    let t = escalation_dead().await;
    let job = JobId::parse("escalate:ORD-1:1").unwrap();
    let by = DecisionAuthor { who: by("operator:test"), why: None };
    alerts::acknowledge_alerts(&t.app.core.db, &AlertSelection::One(1), &by.who, "done").await.unwrap();
    assert_eq!(
        decide::requeue_job(&t.app.desk, &job, &by).await.unwrap(),
        DecisionOutcome::Refused(RequeueRefusal::AlertAcknowledged)
    );

    let t = escalation_dead().await;
    t.app.core.store.discard(&[&job], &jobs::queues::ALL).await.unwrap();
    assert_eq!(decide::requeue_job(&t.app.desk, &job, &by).await.unwrap(), DecisionOutcome::Done);
    t.run_due().await;
    assert_eq!(t.messages_of("ORD-1", ESCALATION).await, 1);
    t.assert_sound().await;
}

/// Creates an order that is assigned to driver D1.
async fn assigned(within: Duration) -> TestApp {
    let t = TestApp::with(|config| {
        config.dispatch.pickup_within = within;
        config.dispatch.completion_within = within;
    })
    .await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    t.accept_offer("ORD-1").await;
    t.run_due().await;
    t
}

// Fault F14
#[tokio::test]
async fn support_is_told_once_of_a_driver_who_vanished() {
    let t = assigned(secs(12 * HOUR)).await;
    t.run_for(secs(12 * HOUR - 10)).await;
    reconcile(&t).await;
    assert!(!t.timers().await.contains_key("trip:ORD-1"), "a trip that goes well needs no timer");
    t.advance(secs(10)).await;
    reconcile(&t).await;
    let ran = t.run_due().await;
    assert!(ran.iter().any(|r| r.id == "trip:ORD-1"), "{ran:?}");
    assert_eq!(open(&t, STALE_TRIP).await, ["not picked up in time by D1"]);
    t.run_for(secs(HOUR)).await;
    reconcile(&t).await;
    t.run_due().await;
    assert_eq!(t.messages_of("ORD-1", STALE_TRIP).await, 1);
    assert_eq!(t.status("ORD-1").await, OrderStatus::DriverAssigned);
    t.assert_sound().await;
}

// Fault F14
#[tokio::test]
async fn trip_progress_acknowledges_its_alert() {
    let t = assigned(secs(12 * HOUR)).await;
    t.advance(secs(12 * HOUR)).await;
    reconcile(&t).await;
    t.run_due().await;
    assert_eq!(open(&t, STALE_TRIP).await.len(), 1);
    t.act("ORD-1", |s| actions::record_pickup(s, &"D1".into())).await.unwrap();
    assert!(open(&t, STALE_TRIP).await.is_empty(), "the driver is back");
    t.advance(secs(12 * HOUR)).await;
    reconcile(&t).await;
    t.run_due().await;
    assert_eq!(open(&t, STALE_TRIP).await, ["not completed in time by D1"]);
    t.act("ORD-1", |s| actions::complete_trip(s, &"D1".into())).await.unwrap();
    assert!(open(&t, STALE_TRIP).await.is_empty());
    assert_eq!(t.snapshot("ORD-1").await.order.trip_deadline, None);
    t.assert_sound().await;
}

// Fault F14
#[tokio::test]
async fn zero_trip_time_raises_no_alert() {
    let t = assigned(secs(0)).await;
    t.advance(secs(365 * 24 * HOUR)).await;
    reconcile(&t).await;
    t.run_due().await;
    assert_eq!(t.messages_of("ORD-1", STALE_TRIP).await, 0);
    t.carry_out("ORD-1", "D1").await;
    t.assert_sound().await;
}

// Fault F19c
#[tokio::test]
async fn review_end_closes_only_its_own_alert() {
    let t = TestApp::start().await;
    t.order("ORD-1").await;
    let told = |why: &'static str| {
        move |s: &Snapshot| {
            let mut change = Change::new(s, by("system"));
            change.notify(messages::unexpected_state(&s.order, why, s.now));
            Decision::from(change)
        }
    };
    t.act("ORD-1", told("the partner will not cancel a booking")).await.unwrap();
    t.act("ORD-1", |s| {
        let mut change = Change::new(s, by("system"));
        change.hold_for_review(s, HoldCause::UnknownPayment, "its payment is odd");
        change.notify(messages::unexpected_state(&change.order, "its payment is odd", s.now));
        change.into()
    })
    .await
    .unwrap();
    assert_eq!(open(&t, UNEXPECTED_STATE).await.len(), 2);
    let after = t.act("ORD-1", |s| actions::redispatch_order(s, &by("operator:test"))).await.unwrap();
    assert_eq!(open(&t, UNEXPECTED_STATE).await, ["the partner will not cancel a booking"]);
    assert_eq!(after.after.alerts.len(), 1, "and it escalates still");
    t.assert_sound().await;
}

// Fault F19j
#[tokio::test]
async fn payment_events_of_an_order_are_bounded() {
    let t = TestApp::start().await;
    t.order("ORD-1").await;
    t.cancel("ORD-1").await.unwrap();
    let pay = async |event: &str, status: &str| {
        let status = status.to_owned().try_into().unwrap();
        t.act("ORD-1", |s| money::record_payment(s, &by("producer:test"), event, &status)).await.unwrap();
    };
    for word in ["DISPUTED", "FROZEN", "LOST"] {
        pay(&format!("odd-{word}"), word).await;
    }
    assert_eq!(open(&t, UNEXPECTED_STATE).await.len(), 1);
    pay("money", "PAID").await;
    assert_eq!(open(&t, MANUAL_REFUND_REQUIRED).await.len(), 1);
    for n in 0..150 {
        // Events within one millisecond have no defined order.
        t.advance(secs(1)).await;
        pay(&format!("late-{n}"), "PENDING").await;
    }
    assert_eq!(t.count("SELECT count(*) FROM payment_events").await, 101, "the latest, and the one that brought money");
    assert_eq!(t.texts("SELECT event_id FROM payment_events WHERE payment_status = 'PAID'").await, ["money"]);
    assert_eq!(t.count("SELECT count(*) FROM payment_events WHERE event_id = 'late-149'").await, 1);
    // A repeat of a removed event changes nothing.
    pay("odd-LOST", "PENDING").await;
    assert_eq!(t.texts("SELECT payment_status FROM orders").await, ["PAID"]);
    t.assert_sound().await;
}
