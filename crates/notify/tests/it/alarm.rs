//! STATUS_UPDATE_FAILED: support is notified, without the database, that the end of an order cannot be written.

use axum::http::StatusCode;

use model::{
    messages::{MANUAL_REFUND_REQUIRED, STATUS_UPDATE_FAILED},
    order::OrderStatus,
};
use orders::compensation::outage;
use queue::Outcome;
use test_support::{Receiver, TestApp, eventually, secs};

const REFUSE: &str = "
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no, says the trigger'; END $$;
    CREATE TRIGGER refuse BEFORE UPDATE ON orders FOR EACH ROW WHEN (NEW.status LIKE 'CANCELLED%') EXECUTE FUNCTION refuse()";
const ALLOW: &str = "DROP TRIGGER refuse ON orders";

/// Creates a paid order that is COMPENSATING and whose compensation is due.
async fn compensating(receiver: &Receiver) -> TestApp {
    let t = TestApp::with(|config| receiver.configure(config)).await;
    t.order_of("ORD-1", "RIDE", "PAID").await;
    t.run_for(secs(1799)).await;
    t.advance(secs(1)).await;
    for leased in t.take().await {
        let outcome = t.perform(&leased).await;
        t.settle(&leased, outcome).await;
    }
    assert_eq!(t.status("ORD-1").await, OrderStatus::Compensating);
    t
}

fn told(receiver: &Receiver) -> usize {
    receiver.received().iter().filter(|m| m.body["type"] == STATUS_UPDATE_FAILED).count()
}

#[tokio::test]
async fn refused_ending_alerts_once_until_it_succeeds() {
    let receiver = Receiver::start().await;
    let t = compensating(&receiver).await;
    t.sql(REFUSE).await;
    // The receiver fails at first. Each try of the compensation raises the alarm again.
    receiver.fail(StatusCode::BAD_GATEWAY, 2);
    t.run_for(secs(10)).await;
    assert_eq!(told(&receiver), 3);
    let received = receiver.received();
    assert!(received.iter().all(|m| m.id == received[0].id));
    let data = &received[2].body["data"];
    assert!(data["error"].as_str().unwrap().contains("no, says the trigger"), "{data}");
    assert_eq!(
        (data["event"].as_str(), data["order_id"].as_str()),
        (Some("support.manual_action_required"), Some("ORD-1"))
    );
    let row = t.texts("SELECT kind || ' ' || channel || ' ' || state FROM audit_notifications").await;
    assert_eq!(row, [format!("{STATUS_UPDATE_FAILED} hook delivered")]);
    assert_eq!(t.count("SELECT count(*) FROM alerts WHERE acked_at IS NULL").await, 1);

    t.sql(ALLOW).await;
    t.run_for(secs(60)).await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::CancelledBySystemAfterPayment);
    assert_eq!(told(&receiver), 3);
    assert_eq!(t.messages_of("ORD-1", MANUAL_REFUND_REQUIRED).await, 1);
    let acked = t.texts("SELECT kind FROM alerts WHERE acked_at IS NOT NULL").await;
    assert_eq!(acked, [STATUS_UPDATE_FAILED]);
    assert!(t.timers().await.keys().all(|id| !id.starts_with("alarm:")), "{:?}", t.timers().await);
    t.assert_sound().await;
}

#[tokio::test]
async fn failure_resolved_before_alarm_is_not_reported() {
    let receiver = Receiver::start().await;
    let t = compensating(&receiver).await;
    t.sql(REFUSE).await;
    let compensate = t.take().await.into_iter().find(|j| j.delivery.id.kind() == "compensate").unwrap();
    let outcome = t.perform(&compensate).await;
    assert!(matches!(outcome, Outcome::Retry(_)), "{outcome:?}");
    t.sql(ALLOW).await;
    // The alarm first retries the failed compensation. It succeeds, so nothing is sent.
    t.settle(&compensate, outcome).await;
    t.run_due().await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::CancelledBySystemAfterPayment);
    assert_eq!(told(&receiver), 0);
    t.run_for(secs(60)).await;
    t.assert_sound().await;
}

#[tokio::test]
async fn postgres_outage_sends_one_support_alert() {
    let receiver = Receiver::start().await;
    let mut t = compensating(&receiver).await;
    t.order_of("ORD-2", "RIDE", "PAID").await;
    let compensate = t.take().await.into_iter().find(|j| j.delivery.id.kind() == "compensate").unwrap();
    t.postgres.kill().await;
    let outcome = t.perform(&compensate).await;
    assert!(matches!(outcome, Outcome::Snooze { .. }), "an outage spends no try: {outcome:?}");
    t.settle(&compensate, outcome).await;
    let of_order = queue::JobId::parse("alarm:ORD-1:hook").unwrap();
    let alarm = t.app.core.store.find_job(&of_order, &jobs::queues::ALL).await.unwrap();
    let due_in = alarm.expect("the alarm waits").at_ms - t.now_ms();
    assert_eq!(due_in, 60_000, "a short outage raises no alert");
    eventually("Postgres is found away", || async { !t.app.core.readiness.is_writable().await }).await;

    // A worker has leased the alarm of the order during the whole outage.
    t.app.core.store.reschedule(&of_order, &jobs::queues::ALL, secs(0)).await.unwrap();
    let alarm = t.take().await.into_iter().find(|j| j.delivery.id.kind() == "alarm").unwrap();
    let outcome = t.perform(&alarm).await;
    assert!(matches!(outcome, Outcome::Snooze { .. }), "{outcome:?}");
    t.settle(&alarm, outcome).await;

    let another_worker = t.reconfigured(|_| {});
    assert!(outage::look_once(&t.app.orders, false).await.unwrap());
    assert_eq!(told(&receiver), 0, "it has just begun");
    let begun = (t.now_ms() - 60_000).to_string();
    t.redis::<String>(&["SET", "dispatchq:outage:since", &begun]).await;
    // The receiver also fails at first. The message is sent again after the claim has ended.
    receiver.fail(StatusCode::BAD_GATEWAY, 1);
    for app in [&t.app, &another_worker] {
        assert!(outage::look_once(&app.orders, false).await.unwrap());
    }
    assert_eq!(told(&receiver), 1, "the one that was refused");
    t.redis::<i64>(&["DEL", &format!("dispatchq:outage:told:{begun}:hook")]).await;
    for app in [&t.app, &another_worker, &t.app] {
        assert!(outage::look_once(&app.orders, true).await.unwrap());
    }
    let received = receiver.received();
    assert_eq!(received.len(), 2, "{received:?}");
    assert_eq!(received[0].id, received[1].id);
    let data = &received[1].body["data"];
    assert_eq!(
        (data["event"].as_str(), data["order_id"].as_str()),
        (Some("support.manual_action_required"), Some("ORD-1"))
    );
    assert!(data["error"].as_str().unwrap().contains("orders whose end waits for it: 1,"), "{data}");

    t.postgres.restart().await.unwrap();
    eventually("Postgres is found back", || async { t.app.core.readiness.is_writable().await }).await;
    assert!(!outage::look_once(&t.app.orders, true).await.unwrap());
    assert_eq!(t.redis::<i64>(&["EXISTS", "dispatchq:outage:since"]).await, 0);
    t.run_for(secs(120)).await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::CancelledBySystemAfterPayment);
    assert_eq!(told(&receiver), 2, "nothing more is told of it");
    t.assert_sound().await;
}
