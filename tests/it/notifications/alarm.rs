//! STATUS_UPDATE_FAILED: support is told that an order's end cannot be written, without the database that refuses it.

use axum::http::StatusCode;
use dispatch::{
    notifications::messages::{MANUAL_REFUND_REQUIRED, STATUS_UPDATE_FAILED},
    orders::OrderStatus,
};
use workers::Outcome;

use crate::support::{Receiver, TestApp, secs};

const REFUSE: &str = "
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no, says the trigger'; END $$;
    CREATE TRIGGER refuse BEFORE UPDATE ON orders FOR EACH ROW WHEN (NEW.status LIKE 'CANCELLED%') EXECUTE FUNCTION refuse()";
const ALLOW: &str = "DROP TRIGGER refuse ON orders";

/// A paid order that is COMPENSATING and whose compensation is due.
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
async fn an_end_the_database_refuses_is_told_once_and_acknowledged_by_its_success() {
    let receiver = Receiver::start().await;
    let t = compensating(&receiver).await;
    t.sql(REFUSE).await;
    // The receiver is down at first, and every try of the compensation comes here again.
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
async fn what_goes_well_again_before_anybody_is_told_is_told_to_nobody() {
    let receiver = Receiver::start().await;
    let t = compensating(&receiver).await;
    t.sql(REFUSE).await;
    let compensate = t.take().await.into_iter().find(|j| j.delivery.id.kind() == "compensate").unwrap();
    let outcome = t.perform(&compensate).await;
    assert!(matches!(outcome, Outcome::Retry(_)), "{outcome:?}");
    t.sql(ALLOW).await;
    // The alarm tries first what failed, and has nothing to tell.
    t.settle(&compensate, outcome).await;
    t.run_due().await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::CancelledBySystemAfterPayment);
    assert_eq!(told(&receiver), 0);
    t.run_for(secs(60)).await;
    t.assert_sound().await;
}

#[tokio::test]
async fn the_alert_needs_no_database_and_is_logged_when_there_is_one_again() {
    let receiver = Receiver::start().await;
    let mut t = compensating(&receiver).await;
    let compensate = t.take().await.into_iter().find(|j| j.delivery.id.kind() == "compensate").unwrap();
    t.postgres.kill().await;
    let outcome = t.perform(&compensate).await;
    assert!(matches!(outcome, Outcome::Snooze { .. }), "an outage spends no try: {outcome:?}");
    let alarm =
        t.app.store.find_job(&workers::JobId::parse("alarm:ORD-1:hook").unwrap(), &jobs::queues::ALL).await.unwrap();
    let due_in = alarm.expect("the alarm waits").at_ms - t.now_ms();
    assert_eq!(due_in, 60_000, "a short outage raises no alert");

    // Much longer, and a worker that had the job in hand all the time.
    t.app
        .store
        .reschedule(&workers::JobId::parse("alarm:ORD-1:hook").unwrap(), &jobs::queues::ALL, secs(0))
        .await
        .unwrap();
    let alarm = t.take().await.into_iter().find(|j| j.delivery.id.kind() == "alarm").unwrap();
    let outcome = t.perform(&alarm).await;
    assert_eq!(told(&receiver), 1);
    let Outcome::Done { then } = &outcome else { panic!("{outcome:?}") };
    assert_eq!((then.len(), then[0].id.as_str()), (1, "alarm:ORD-1:hook"), "the log is still to be written");
    t.settle(&alarm, outcome).await;

    t.postgres.restart().await.unwrap();
    t.run_for(secs(120)).await;
    assert_eq!(told(&receiver), 1);
    assert_eq!(
        t.count("SELECT count(*) FROM outbox WHERE kind = 'STATUS_UPDATE_FAILED' AND state = 'delivered'").await,
        1
    );
    t.settle(&compensate, Outcome::Snooze { delay: secs(0) }).await;
    t.run_for(secs(10)).await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::CancelledBySystemAfterPayment);
    t.assert_sound().await;
}
