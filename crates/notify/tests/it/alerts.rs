//! An alert is escalated until a person acknowledges it.

use serde_json::json;

use accounts::api_keys::AccountRole;
use maintenance::recovery::reconciler;
use model::{
    decide::{Change, actions},
    messages::{
        DISPATCH_FAILED, ESCALATION, MANUAL_REFUND_REQUIRED, REMINDER, SLA_WARNING, TIMER_DEAD, UNEXPECTED_STATE,
    },
    order::{EventReason, OrderStatus},
};
use notify::alerts::{self, AlertFilter, AlertSelection};
use queue::store::JobState;
use test_support::{Api, Receiver, TestApp, by, ids, secs};

const HOUR: u64 = 3600;

/// Creates a paid order without a driver, whose refund alert was sent and is open.
async fn refund_due(t: &TestApp) {
    t.order_of("ORD-1", "RIDE", "PAID").await;
    t.run_for(secs(1800)).await;
}

async fn ack(t: &TestApp, id: i64) {
    let acked = alerts::acknowledge_alerts(&t.app.core.db, &AlertSelection::One(id), &by("operator:test"), "done")
        .await
        .unwrap();
    assert_eq!(acked.len(), 1);
}

async fn escalations(t: &TestApp) -> usize {
    t.messages_of("ORD-1", ESCALATION).await
}

#[tokio::test]
async fn unacknowledged_refund_escalates_up_to_the_bound() {
    let receiver = Receiver::start().await;
    let t = TestApp::with(|config| {
        receiver.configure(config);
        config.notifications.escalation = vec!["log".to_owned(), "hook".to_owned()];
        config.notifications.escalate.times = 3;
    })
    .await;
    refund_due(&t).await;
    assert_eq!(t.timers().await.keys().collect::<Vec<_>>(), ["escalate:ORD-1:1"]);
    t.run_for(secs(24 * HOUR - 1)).await;
    assert_eq!(escalations(&t).await, 0);
    t.run_for(secs(1)).await;
    assert_eq!(escalations(&t).await, 2, "one over each channel");
    let last = receiver.received().pop().unwrap();
    assert_eq!(last.body["type"], ESCALATION);
    assert_eq!(
        (&last.body["data"]["alert_kind"], &last.body["data"]["number"]),
        (&json!(MANUAL_REFUND_REQUIRED), &json!(1))
    );
    assert_eq!(last.body["data"]["alert"]["payment_amount_minor"], 150_000);
    t.run_for(secs(4 * HOUR)).await;
    assert_eq!(escalations(&t).await, 4);
    t.run_for(secs(100 * HOUR)).await;
    assert_eq!(escalations(&t).await, 6, "three times, and no more");
    assert_eq!(t.timers().await.len(), 0);
    assert_eq!(t.messages_of("ORD-1", MANUAL_REFUND_REQUIRED).await, 1);
    let open = alerts::list_alerts(&t.app.core.db, &AlertFilter { open: true, limit: 10, ..AlertFilter::default() })
        .await
        .unwrap();
    assert_eq!((open.len(), open[0].escalations, open[0].next_escalation_at), (1, 3, None));
    t.assert_sound().await;
}

#[tokio::test]
async fn sla_warning_follows_business_hours() {
    let receiver = Receiver::start().await;
    let t = TestApp::with(|config| {
        receiver.configure(config);
        config.notifications.escalate.after = secs(9 * HOUR);
        config.notifications.sla_warning = secs(HOUR);
        let weekdays = ["Mon", "Tue", "Wed", "Thu", "Fri"];
        let desk = json!({ "time_zone": "UTC", "weekdays": weekdays, "opens": "08:00", "closes": "17:00",
                           "holidays": ["2030-01-02"] });
        config.notifications.business_hours = Some(serde_json::from_value(desk).unwrap());
    })
    .await;
    // The alert is sent on Tuesday at 8:30. Wednesday is a holiday, so the ninth open hour ends on Thursday at 8:30.
    t.order_of("ORD-1", "RIDE", "PAID").await;
    t.sql("UPDATE orders SET customer_id = 'C-7'").await;
    t.run_for(secs(1800)).await;
    let told = receiver.received().into_iter().find(|message| message.body["type"] == MANUAL_REFUND_REQUIRED);
    assert_eq!(told.unwrap().body["data"]["customer_id"], "C-7");
    t.run_for(secs(8 * HOUR - 1)).await;
    assert_eq!(t.messages_of("ORD-1", SLA_WARNING).await, 0);
    t.run_for(secs(1)).await;
    assert_eq!((t.messages_of("ORD-1", SLA_WARNING).await, escalations(&t).await), (1, 0));
    let warning = receiver.received().pop().unwrap().body;
    assert_eq!(
        (&warning["type"], &warning["data"]["sla_ends_at"]),
        (&json!(SLA_WARNING), &json!("2030-01-03T08:30:00Z"))
    );
    assert_eq!(warning["data"]["alert"]["alert_type"], MANUAL_REFUND_REQUIRED);
    assert_eq!(warning["data"]["alert"]["customer_id"], "C-7");

    t.run_for(secs(40 * HOUR - 1)).await;
    assert_eq!(escalations(&t).await, 0);
    t.run_for(secs(1)).await;
    assert_eq!((t.messages_of("ORD-1", SLA_WARNING).await, escalations(&t).await), (1, 1));
    // Escalations repeat every four open hours.
    t.run_for(secs(4 * HOUR)).await;
    assert_eq!(escalations(&t).await, 2);
    let open = AlertFilter { open: true, limit: 10, ..AlertFilter::default() };
    assert_eq!(alerts::list_alerts(&t.app.core.db, &open).await.unwrap().len(), 1, "a warning is no alert of its own");
    t.assert_sound().await;
}

#[tokio::test]
async fn acknowledging_ends_the_escalation_whenever_it_comes() {
    let t = TestApp::start().await;
    refund_due(&t).await;
    t.run_for(secs(25 * HOUR)).await;
    assert_eq!(escalations(&t).await, 1);
    ack(&t, 1).await;
    t.run_for(secs(100 * HOUR)).await;
    assert_eq!(escalations(&t).await, 1);
    // A second acknowledgement changes nothing, not even the recorded person.
    let again = alerts::acknowledge_alerts(
        &t.app.core.db,
        &AlertSelection::Order("ORD-1".parse().unwrap()),
        &by("operator:other"),
        "me too",
    )
    .await;
    assert_eq!(again.unwrap()[0].acked_by.as_deref(), Some("operator:test"));
    assert_eq!(
        alerts::acknowledge_alerts(&t.app.core.db, &AlertSelection::One(99), &by("operator:test"), "x")
            .await
            .unwrap()
            .len(),
        0
    );
    t.assert_sound().await;
}

#[tokio::test]
async fn a_refund_that_begins_acknowledges_its_alert() {
    let t = TestApp::start().await;
    refund_due(&t).await;
    t.act("ORD-1", |s| {
        let mut change = Change::new(s, by("operator:test"));
        change.transition_to(OrderStatus::RefundPending, EventReason::ReleasedByHand, None);
        change.into()
    })
    .await
    .unwrap();
    assert_eq!(t.snapshot("ORD-1").await.alerts, []);
    let acked = t.texts("SELECT kind || ' ' || acked_by || ' ' || ack_note FROM alerts").await;
    assert_eq!(acked, ["MANUAL_REFUND_REQUIRED operator:test the order became REFUND_PENDING"]);
    t.run_for(secs(100 * HOUR)).await;
    assert_eq!(escalations(&t).await, 0);
    t.assert_sound().await;
}

#[tokio::test]
async fn a_doubled_early_or_interrupted_escalation_tells_once() {
    let t = TestApp::start().await;
    refund_due(&t).await;
    // An operator runs the job before it is due.
    let id = queue::JobId::parse("escalate:ORD-1:1").unwrap();
    t.app.core.store.reschedule(&id, &jobs::queues::ALL, secs(0)).await.unwrap();
    assert_eq!(ids(&t.run_due().await), ["escalate:ORD-1:1"]);
    assert_eq!(escalations(&t).await, 0);

    t.advance(secs(24 * HOUR)).await;
    let escalate = t.take().await.remove(0);
    let (first, second) = tokio::join!(t.perform(&escalate), t.perform(&escalate));
    assert_eq!(escalations(&t).await, 1);
    for outcome in [first, second] {
        let queue::Outcome::Done { then, .. } = outcome else { panic!("{outcome:?}") };
        let then: Vec<_> = then.iter().map(|job| job.id.as_str()).collect();
        assert!(then.contains(&"escalate:ORD-1:1"), "{then:?}");
    }
    // The worker died before it settled the job. The job runs again and enqueues the missing jobs.
    t.outlive_leases().await;
    t.run_due().await;
    assert_eq!(escalations(&t).await, 1);
    assert_eq!(t.count("SELECT count(*) FROM outbox WHERE state = 'pending'").await, 0);
    t.assert_sound().await;
}

#[tokio::test]
async fn escalations_and_messages_outlive_a_flush_of_redis() {
    let receiver = Receiver::start().await;
    let t = TestApp::with(|config| receiver.configure(config)).await;
    receiver.fail(axum::http::StatusCode::BAD_GATEWAY, 3);
    refund_due(&t).await;
    let before = t.timers().await;
    assert!(before.keys().any(|id| id.starts_with("notify:")) && before.keys().any(|id| id.starts_with("escalate:")));
    t.redis::<()>(&["FLUSHALL"]).await;
    reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap();
    assert_eq!(t.timers().await.into_keys().collect::<Vec<_>>(), before.into_keys().collect::<Vec<_>>());
    t.run_for(secs(60)).await;
    assert_eq!(receiver.received().len(), 4);
    t.redis::<()>(&["FLUSHALL"]).await;
    t.advance(secs(25 * HOUR)).await;
    reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap();
    t.run_due().await;
    assert_eq!(escalations(&t).await, 1);
    t.assert_sound().await;
}

#[tokio::test]
async fn lost_escalation_returns_and_dead_one_gives_up() {
    let t = TestApp::start().await;
    refund_due(&t).await;
    let due = t.app.core.store.keys().due_set(jobs::queues::NOTIFY);
    assert_eq!(t.redis::<i64>(&["ZREM", &due, "escalate:ORD-1:1"]).await, 1);
    assert_eq!(t.violations().await, ["no_timer_missing: escalate:ORD-1:1: is not in notify-queue"]);
    t.advance(secs(24 * HOUR + 4)).await;
    let report = reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap();
    assert_eq!(report.inserted, 1);

    let escalate = t.take().await.remove(0);
    t.settle(&escalate, queue::Outcome::Dead("a bug".to_owned())).await;
    t.advance(secs(4)).await;
    reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap();
    assert_eq!(t.count("SELECT count(*) FROM alerts WHERE gave_up_at IS NOT NULL AND acked_at IS NULL").await, 1);
    assert_eq!(t.messages_of("ORD-1", TIMER_DEAD).await, 0);
    // The outbox message with the same number is not affected.
    assert_eq!(t.count("SELECT count(*) FROM outbox WHERE state = 'dead'").await, 0);
    t.assert_sound().await;
}

#[tokio::test]
async fn dispatchers_are_reminded_of_an_order_that_waits_for_them() {
    let receiver = Receiver::start().await;
    let t = TestApp::with(|config| receiver.configure(config)).await;
    t.user("anna", AccountRole::Dispatcher, "hook").await;
    t.user("budi", AccountRole::Dispatcher, "log").await;
    t.order_of("ORD-1", "RENT", "UNPAID").await;
    t.run_due().await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::Pending);
    assert!(t.timers().await.contains_key("remind:ORD-1:1"));
    t.run_for(secs(301)).await;
    assert_eq!(t.messages_of("ORD-1", REMINDER).await, 2, "each dispatcher");
    let last = receiver.received().pop().unwrap();
    assert_eq!((&last.body["type"], &last.body["data"]["alert_kind"]), (&json!(REMINDER), &json!(DISPATCH_FAILED)));
    t.run_for(secs(300)).await;
    assert_eq!(t.messages_of("ORD-1", REMINDER).await, 4);

    t.drivers(&[("D1", 100.0)]).await;
    t.act("ORD-1", |s| actions::assign_driver(s, &by("operator:test"), &"D1".into())).await.unwrap();
    let acked = t.texts("SELECT acked_by || ': ' || ack_note FROM alerts").await;
    assert_eq!(acked, ["operator:test: the order became DRIVER_ASSIGNED"]);
    t.run_for(secs(HOUR)).await;
    assert_eq!(t.messages_of("ORD-1", REMINDER).await, 4);
    t.assert_sound().await;
}

#[tokio::test]
async fn the_end_of_a_review_acknowledges_its_alert() {
    let t = TestApp::start().await;
    t.order("ORD-1").await;
    let dispatch = t.take().await.remove(0);
    t.settle(&dispatch, queue::Outcome::Dead("a bug".to_owned())).await;
    t.advance(secs(4)).await;
    reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap();
    t.run_due().await;
    let open = AlertFilter { open: true, kind: Some(TIMER_DEAD.to_owned()), limit: 10, ..AlertFilter::default() };
    assert_eq!(alerts::list_alerts(&t.app.core.db, &open).await.unwrap().len(), 1);
    assert!(t.timers().await.contains_key("escalate:ORD-1:1"), "a held order has this timer still");
    t.act("ORD-1", |s| actions::redispatch_order(s, &by("operator:test"))).await.unwrap();
    assert_eq!(alerts::list_alerts(&t.app.core.db, &open).await.unwrap().len(), 0);
    t.assert_sound().await;
}

#[tokio::test]
async fn support_sees_and_acknowledges_alerts_over_http() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    for order in ["ORD-1", "ORD-2"] {
        t.order_of(order, "RIDE", "PAID").await;
    }
    t.order_of("ORD-3", "RIDE", "DISPUTED").await;
    t.run_for(secs(1800)).await;
    let support = t.key(AccountRole::Support).await;

    let all = api.get("/api/v1/alerts", &support).await;
    assert_eq!((all.status, all.body["alerts"].as_array().unwrap().len(), &all.body["next"]), (200, 4, &json!(null)));
    let review = api.get(&format!("/api/v1/alerts?kind={UNEXPECTED_STATE}&open=true"), &support).await;
    assert_eq!(review.body["alerts"][0]["order_id"], "ORD-3");
    let first = api.get("/api/v1/alerts?limit=2", &support).await;
    let rest = api.get(&format!("/api/v1/alerts?limit=2&before={}", first.body["next"]), &support).await;
    assert_eq!(rest.body["alerts"].as_array().unwrap().len(), 2);
    let one = api.get("/api/v1/alerts?order_id=ORD-1", &support).await;
    let alert = one.body["alerts"][0].clone();
    assert_eq!((&alert["kind"], &alert["payload"]["payment_status"]), (&json!(MANUAL_REFUND_REQUIRED), &json!("PAID")));

    let path = format!("/api/v1/alerts/{}/ack", alert["id"]);
    let note = || json!({ "note": "refunded" });
    for (role, status) in [
        (AccountRole::Producer, 403),
        (AccountRole::Dispatcher, 403),
        (AccountRole::Operator, 403),
        (AccountRole::Support, 200),
    ] {
        let key = t.key(role).await;
        assert_eq!(api.post(&path, &key, note()).await.status, status, "{role:?}");
    }
    let again = api.post(&path, &t.key(AccountRole::Admin).await, json!({ "note": "again" })).await;
    assert_eq!(
        (again.status, again.text("acked_by"), again.text("ack_note")),
        (200, "support:test-support", "refunded")
    );
    assert_eq!(api.post("/api/v1/alerts/99/ack", &support, note()).await.error(), (404, "ALERT_NOT_FOUND"));
    assert_eq!(api.post("/api/v1/alerts/x/ack", &support, note()).await.error(), (404, "ALERT_NOT_FOUND"));
    for (body, code) in [(json!({ "note": " " }), 422), (json!({}), 422), (json!({ "note": "x".repeat(501) }), 422)] {
        assert_eq!(api.post(&path, &support, body).await.status, code);
    }
    assert_eq!(api.get("/api/v1/alerts", &t.key(AccountRole::Producer).await).await.status, 403);
    assert_eq!(api.get("/api/v1/alerts", "").await.status, 401);
    for query in ["limit=0", "limit=501", "order_id=a:b", "colour=red", "before=x"] {
        assert_eq!(api.get(&format!("/api/v1/alerts?{query}"), &support).await.error(), (422, "INVALID"), "{query}");
    }
    t.assert_sound().await;
}

#[tokio::test]
async fn an_alert_about_an_order_that_never_was_escalates_too() {
    let t = TestApp::start().await;
    let job = jobs::CompensateOrder { order: "ORD-404".parse().unwrap() };
    t.app.core.store.enqueue(&[queue::NewJob::now(&job)]).await.unwrap();
    t.run_for(secs(24 * HOUR)).await;
    assert_eq!(t.messages_of("ORD-404", ESCALATION).await, 1);
    ack(&t, 1).await;
    t.run_for(secs(24 * HOUR)).await;
    assert_eq!(t.messages_of("ORD-404", ESCALATION).await, 1);
    assert_eq!(t.app.core.store.list_jobs(jobs::queues::NOTIFY, JobState::Due, 0, 10).await.unwrap().len(), 0);
    t.assert_sound().await;
}
