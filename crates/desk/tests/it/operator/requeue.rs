//! Requeue of a dead job: its order continues, or the request is refused with a reason. After a crash at any step, the
//! request can be repeated.

use axum::http::StatusCode;

use super::{anna, bury_due, dead_ids, job};
use desk::dead_letters::{
    decide::{DecisionOutcome, discard_job, preview_requeue, requeue_job},
    requeue_policy,
};
use foundation::dead_letter_rows::{self, Resolution, ResolutionKind};
use maintenance::recovery::reconciler;
use model::{
    decide::{actions, requeue::RequeueRefusal},
    messages::MANUAL_REFUND_REQUIRED,
    order::{OrderStatus, Snapshot},
};
use orders::seen::Basis;
use queue::{NewJob, store::JobState};
use test_support::{Receiver, TestApp, by, id, ids, secs};

const DISPATCH: &str = "dispatch:ORD-1:1";

/// Runs the reconciler so that it finds dead, overdue jobs. Returns the number of orders put under review.
async fn notice(t: &TestApp) -> u64 {
    t.advance(secs(4)).await;
    reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap().held
}

const HOLD_CAUSE: &str = "SELECT coalesce(hold_cause::text, '') FROM orders";

/// Creates an order that is under review because its first dispatch job is dead.
async fn held() -> TestApp {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    assert_eq!(bury_due(&t.app, "no route to host").await, 1);
    assert_eq!(notice(&t).await, 1);
    t
}

async fn is_refused(t: &TestApp, id: &str) -> RequeueRefusal {
    let before = (t.dump().await, dead_ids(&t.app).await);
    let DecisionOutcome::Refused(refused) = requeue_job(&t.app.desk, &job(id), &anna()).await.unwrap() else {
        panic!("not refused")
    };
    assert_eq!(preview_requeue(&t.app.core, &job(id)).await.unwrap(), DecisionOutcome::Refused(refused.clone()));
    assert_eq!((t.dump().await, dead_ids(&t.app).await), before, "a refusal changes nothing");
    refused
}

async fn is_requeued(t: &TestApp, id: &str) {
    let before = (t.dump().await, dead_ids(&t.app).await);
    assert_eq!(preview_requeue(&t.app.core, &job(id)).await.unwrap(), DecisionOutcome::Done);
    assert_eq!((t.dump().await, dead_ids(&t.app).await), before, "a preview changes nothing");
    assert_eq!(requeue_job(&t.app.desk, &job(id), &anna()).await.unwrap(), DecisionOutcome::Done);
}

/// Asserts that the order continues: D1 gets the offer and carries it out.
async fn goes_on(t: &TestApp) {
    t.run_due().await;
    assert!(!t.snapshot("ORD-1").await.order.held_for_review);
    assert_eq!(dead_ids(&t.app).await, Vec::<String>::new());
    t.accept_offer("ORD-1").await;
    t.carry_out("ORD-1", "D1").await;
    t.run_due().await;
    t.assert_sound().await;
}

#[tokio::test]
async fn an_order_held_by_its_dead_timer_goes_on() {
    let t = held().await;
    assert_eq!(t.texts(HOLD_CAUSE).await, [r#"{"job": "dispatch:ORD-1:1", "kind": "dead_timer"}"#]);
    is_requeued(&t, DISPATCH).await;
    assert_eq!(t.texts(HOLD_CAUSE).await, [""]);
    let told = t.texts("SELECT actor || ' ' || detail FROM order_events WHERE reason = 'REQUEUED_BY_HAND'").await;
    assert_eq!(told, ["operator:anna dispatch:ORD-1:1: routing is back"]);
    let kept = t
        .texts(
            "SELECT concat_ws(' ', queue, job_id, error, failed, resolved_how, resolved_by, resolved_why) FROM dead_letters",
        )
        .await;
    let expected = "dispatch-queue dispatch:ORD-1:1 no route to host 0 requeued operator:anna routing is back";
    assert_eq!(kept, [expected]);
    assert_eq!(requeue_job(&t.app.desk, &job(DISPATCH), &anna()).await.unwrap(), DecisionOutcome::NotDead);
    goes_on(&t).await;
}

#[tokio::test]
async fn a_dead_timeout_lets_the_search_resume() {
    let t = TestApp::start().await;
    t.drivers(&[("D2", 100.0), ("D1", 200.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    t.advance(secs(120)).await;
    bury_due(&t.app, "broken").await;
    assert_eq!(notice(&t).await, 1);
    is_requeued(&t, "timeout:ORD-1:1").await;
    assert!(ids(&t.run_due().await).contains(&"dispatch:ORD-1:2"));
    assert_eq!(t.asked("ORD-1").await, "D1");
    goes_on(&t).await;
}

#[tokio::test]
async fn a_timer_requeued_before_anybody_noticed_holds_nothing() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    bury_due(&t.app, "broken").await;
    is_requeued(&t, DISPATCH).await;
    assert_eq!(notice(&t).await, 0);
    goes_on(&t).await;
}

#[tokio::test]
async fn two_operators_give_one_life() {
    let t = held().await;
    let (dispatch, by) = (job(DISPATCH), anna());
    let both = tokio::join!(requeue_job(&t.app.desk, &dispatch, &by), requeue_job(&t.app.desk, &dispatch, &by));
    assert!([both.0.unwrap(), both.1.unwrap()].contains(&DecisionOutcome::Done));
    // The review has ended, so the escalation finds its alert acknowledged.
    assert_eq!(t.timers().await.len(), 4, "dispatch, lifetime, the alert, and its escalation");
    goes_on(&t).await;
}

#[tokio::test]
async fn jobs_of_closed_or_unknown_orders_stay_dead() {
    let t = held().await;
    t.cancel("ORD-1").await.unwrap();
    assert!(matches!(is_refused(&t, DISPATCH).await, RequeueRefusal::OrderClosed { .. }));
    let unknown = NewJob {
        queue: jobs::queues::DISPATCH,
        id: job("dispatch:NONE:1"),
        delay: secs(0),
        payload: None,
        slots: None,
    };
    t.app.core.store.enqueue(&[unknown]).await.unwrap();
    t.run_due().await;
    let unknown = NewJob {
        queue: jobs::queues::DISPATCH,
        id: job("dispatch:NONE:2"),
        delay: secs(0),
        payload: None,
        slots: None,
    };
    t.app.core.store.enqueue(&[unknown]).await.unwrap();
    bury_due(&t.app, "broken").await;
    assert!(matches!(is_refused(&t, "dispatch:NONE:2").await, RequeueRefusal::NoOrder { .. }));
    for id in [DISPATCH, "dispatch:NONE:2"] {
        assert_eq!(discard_job(&t.app.core, &job(id), &anna()).await.unwrap(), DecisionOutcome::Done);
        assert_eq!(discard_job(&t.app.core, &job(id), &anna()).await.unwrap(), DecisionOutcome::NotDead);
    }
    assert_eq!(dead_ids(&t.app).await, Vec::<String>::new());
    let kept = t.texts("SELECT resolved_how || ' ' || resolved_by FROM dead_letters").await;
    assert_eq!(kept, ["discarded operator:anna", "discarded operator:anna"]);
}

#[tokio::test]
async fn a_superseded_timer_stays_dead() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    t.accept_offer("ORD-1").await;
    // The call that cancels this job with the change is lost.
    let timeout = NewJob {
        queue: jobs::queues::DISPATCH_TIMEOUT,
        id: job("timeout:ORD-1:1"),
        delay: secs(0),
        payload: None,
        slots: None,
    };
    t.app.core.store.enqueue(&[timeout]).await.unwrap();
    bury_due(&t.app, "broken").await;
    let refused = is_refused(&t, "timeout:ORD-1:1").await;
    assert!(matches!(refused, RequeueRefusal::Superseded { status: OrderStatus::DriverAssigned, .. }), "{refused}");
}

#[tokio::test]
async fn a_review_of_a_newer_version_is_left_to_a_person() {
    let t = held().await;
    t.sql(r#"UPDATE orders SET hold_cause = '{"kind": "flood", "job": "dispatch:ORD-1:1"}'"#).await;
    let refused = is_refused(&t, DISPATCH).await;
    assert!(matches!(refused, RequeueRefusal::UnderReview { .. }), "{refused}");
}

#[tokio::test]
async fn a_review_for_another_reason_is_not_ended() {
    let t = held().await;
    t.sql(r#"UPDATE orders SET held_reason = 'the payment is odd', hold_cause = '{"kind": "unknown_payment"}'"#).await;
    let refused = is_refused(&t, DISPATCH).await;
    assert!(refused.to_string().contains("the payment is odd"), "{refused}");
}

#[tokio::test]
async fn past_the_lifetime_a_person_must_decide() {
    let t = held().await;
    t.advance(secs(1800)).await;
    let refused = is_refused(&t, DISPATCH).await.to_string();
    for words in ["LIFETIME_TIMEOUT", "dispatchq order assign ORD-1", "dispatchq order cancel ORD-1"] {
        assert!(refused.contains(words), "{refused}");
    }
}

#[tokio::test]
async fn the_lifetimes_own_job_ends_its_order() {
    // The order of RENT waits for a dispatcher. The order of RIDE searches, so its next step is due too and dies with the
    // lifetime job.
    for (service_type, dead) in [("RENT", &["lifetime:ORD-1"][..]), ("RIDE", &[DISPATCH, "lifetime:ORD-1"])] {
        let t = TestApp::start().await;
        t.order_of("ORD-1", service_type, "PAID").await;
        t.run_for(secs(1799)).await;
        t.advance(secs(1)).await;
        bury_due(&t.app, "broken").await;
        assert_eq!(dead_ids(&t.app).await, dead);
        assert_eq!(notice(&t).await, 1);
        if service_type == "RIDE" {
            assert!(matches!(is_refused(&t, DISPATCH).await, RequeueRefusal::LifetimeOver { .. }));
        }
        is_requeued(&t, "lifetime:ORD-1").await;
        t.run_due().await;
        assert_eq!(t.status("ORD-1").await, OrderStatus::CancelledBySystemAfterPayment);
        assert_eq!(t.messages_of("ORD-1", MANUAL_REFUND_REQUIRED).await, 1);
        t.assert_sound().await;
    }
}

#[tokio::test]
async fn periodic_work_just_runs_again() {
    let t = TestApp::start().await;
    let tick = NewJob {
        queue: jobs::queues::PERIODIC,
        id: job("tick:cleanup:60"),
        delay: secs(0),
        payload: None,
        slots: None,
    };
    t.app.core.store.enqueue(&[tick]).await.unwrap();
    bury_due(&t.app, "broken").await;
    is_requeued(&t, "tick:cleanup:60").await;
    assert_eq!(ids(&t.run_due().await), ["tick:cleanup:60"]);
    assert_eq!(t.texts("SELECT resolved_how FROM dead_letters").await, ["requeued"]);
}

/// Creates a refund alert that failed for a day. Returns its job.
async fn given_up(t: &TestApp, receiver: &Receiver) -> String {
    t.order_of("ORD-1", "RIDE", "PAID").await;
    t.cancel("ORD-1").await.unwrap();
    receiver.fail(StatusCode::SERVICE_UNAVAILABLE, 10_000);
    t.run_for(secs(25 * 3600)).await;
    assert_eq!(t.messages("ORD-1").await[0].2, "dead");
    dead_ids(&t.app).await.remove(0)
}

#[tokio::test]
async fn dead_message_is_requeued_for_a_closed_order() {
    let receiver = Receiver::start().await;
    let t = TestApp::with(|config| receiver.configure(config)).await;
    let notify = given_up(&t, &receiver).await;
    is_requeued(&t, &notify).await;
    // The message is retried for another day, not only once.
    t.run_for(secs(3600)).await;
    assert_eq!(t.messages("ORD-1").await[0].2, "pending");
    receiver.recover();
    t.run_for(secs(3600)).await;
    assert_eq!(t.messages("ORD-1").await[0].2, "delivered");
    assert!(t.reasons("ORD-1").await.contains(&"REQUEUED_BY_HAND".to_owned()));
    assert_eq!(dead_ids(&t.app).await, Vec::<String>::new());
    t.assert_sound().await;
}

#[tokio::test]
async fn a_message_whose_job_died_is_revived_with_it() {
    let t = TestApp::start().await;
    t.order_of("ORD-1", "RIDE", "PAID").await;
    t.run_due().await;
    t.cancel("ORD-1").await.unwrap();
    bury_due(&t.app, "panicked").await;
    notice(&t).await;
    assert_eq!(t.messages("ORD-1").await[0].2, "dead");
    let notify = dead_ids(&t.app).await.into_iter().find(|id| id.starts_with("notify:")).unwrap();
    is_requeued(&t, &notify).await;
    t.run_due().await;
    assert_eq!(t.messages("ORD-1").await[0].2, "delivered");
}

#[tokio::test]
async fn an_offer_nobody_can_answer_stays_dead() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    let leased = t.take().await.remove(0);
    let outcome = t.perform(&leased).await;
    t.settle(&leased, outcome).await;
    bury_due(&t.app, "panicked").await;
    let notify = dead_ids(&t.app).await.remove(0);
    assert_eq!(preview_requeue(&t.app.core, &job(&notify)).await.unwrap(), DecisionOutcome::Done);
    t.accept_offer("ORD-1").await;
    assert_eq!(is_refused(&t, &notify).await, RequeueRefusal::OfferGone);
    t.sql("UPDATE outbox SET state = 'delivered'").await;
    assert!(matches!(is_refused(&t, &notify).await, RequeueRefusal::MessageDone { .. }));
    t.sql("DELETE FROM outbox").await;
    assert_eq!(is_refused(&t, &notify).await, RequeueRefusal::NoMessage);
}

/// Changes only the order, as if the process died afterwards.
async fn only_the_order(t: &TestApp) {
    let dispatch = job(DISPATCH);
    let requeue = |s: &Snapshot| requeue_policy::requeue_change(s, &dispatch, &by("operator:anna"), None).into();
    let changed = t.app.orders.change(&id("ORD-1"), Basis::Fresh, requeue).await.unwrap();
    changed.publish(&t.app.orders).await;
}

/// Changes the order and its copy, as if the process died afterwards.
async fn order_and_copy(t: &TestApp) {
    only_the_order(t).await;
    let entry = super::dead(&t.app).await.remove(0);
    let resolution = Resolution { how: ResolutionKind::Requeued, by: "operator:anna".to_owned(), why: None };
    dead_letter_rows::resolve_job(&t.app.core.db, &entry, &resolution).await.unwrap();
}

#[tokio::test]
async fn interrupted_requeue_is_repeated_safely() {
    for noticed in [false, true] {
        let t = held().await;
        only_the_order(&t).await;
        if noticed {
            assert_eq!(notice(&t).await, 1);
        }
        is_requeued(&t, DISPATCH).await;
        goes_on(&t).await;

        let t = held().await;
        order_and_copy(&t).await;
        if noticed {
            assert_eq!(notice(&t).await, 1);
        }
        is_requeued(&t, DISPATCH).await;
        goes_on(&t).await;
    }
}

#[tokio::test]
async fn order_held_by_lost_job_is_requeued() {
    let t = held().await;
    t.app.core.store.discard(&[DISPATCH], &jobs::queues::ALL).await.unwrap();
    assert_eq!(t.app.core.store.find_job(&job(DISPATCH), &jobs::queues::ALL).await.unwrap(), None);
    is_requeued(&t, DISPATCH).await;
    assert_eq!(
        t.app.core.store.find_job(&job(DISPATCH), &jobs::queues::ALL).await.unwrap().unwrap().state,
        JobState::Due
    );
    goes_on(&t).await;
}

#[tokio::test]
async fn dead_message_without_job_is_requeued() {
    let receiver = Receiver::start().await;
    let t = TestApp::with(|config| receiver.configure(config)).await;
    let notify = given_up(&t, &receiver).await;
    t.app.core.store.discard(&[&notify], &jobs::queues::ALL).await.unwrap();
    receiver.recover();
    is_requeued(&t, &notify).await;
    t.run_due().await;
    assert_eq!(t.messages("ORD-1").await[0].2, "delivered");
    assert_eq!(requeue_job(&t.app.desk, &job(&notify), &anna()).await.unwrap(), DecisionOutcome::NotDead);
}

#[tokio::test]
async fn redispatched_order_resolves_its_dead_letter() {
    let t = held().await;
    t.advance(secs(1)).await;
    desk::dead_letters::mirror::mirror_once(&t.app.core).await.unwrap().unwrap();
    t.act("ORD-1", |s| actions::redispatch_order(s, &by("operator:bert"))).await.unwrap();
    assert_eq!(t.texts("SELECT resolved_how FROM dead_letters").await, ["revived"]);
    goes_on(&t).await;
}
