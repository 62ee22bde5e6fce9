//! Messages about bindings: each OTP request and each UNRESOLVED transaction is sent once.

use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use jobs::{NewJob, OrderId, SendNotification};
use model::{
    binding::{BindingPhase, TransactionStatus},
    messages::{MessageSubject, NO_ORDER, OTP_WANTED, TRANSACTION_UNRESOLVED},
};
use serde_json::{Value, json};

use desk::dead_letters::{
    decide::DecisionAuthor,
    redeliver::{self, OutboxFilter},
};
use maintenance::recovery::reconciler;
use model::messages::OutboxState;
use orders::create::{self, CreateError, NewOrder};
use queue::{LeasedJob, store::JobState};
use settings::ChannelConfig;
use test_support::{ProviderStage, Receiver, TestApp, binding_id, by, id, millis, secs};

const CODE: &str = "739154";

/// Configures one webhook for OTP requests and one for unresolved transactions.
async fn desks(receiver: &Receiver) -> ProviderStage {
    ProviderStage::with(|config| {
        for name in ["otp", "unresolved"] {
            let channel = ChannelConfig::unsigned_webhook(receiver.url(&format!("/{name}")));
            config.channels.insert(name.to_owned(), channel);
        }
        config.notifications.otp = vec!["otp".to_owned()];
        config.notifications.unresolved = vec!["unresolved".to_owned()];
    })
    .await
}

fn want_otps(stage: &ProviderStage) {
    stage.turn_knobs(|knobs| {
        knobs.otp_rate = "1".parse().unwrap();
        knobs.otp_code = CODE.to_owned();
        knobs.otp_lifetime = secs(3600);
    });
}

/// Makes the provider's transactions outlast the test.
fn never_end(stage: &ProviderStage) {
    stage.turn_knobs(|knobs| {
        knobs.processing_rate = "1".parse().unwrap();
        knobs.processing_duration = "1h".parse().unwrap();
    });
}

async fn outbox(stage: &ProviderStage) -> Vec<String> {
    stage.t.texts("SELECT kind || ' ' || channel || ' ' || state FROM outbox ORDER BY id").await
}

/// Runs due jobs until one writes a message, and returns that job without settling it, as if its worker had died.
async fn die_once_it_is_written(stage: &ProviderStage) -> LeasedJob {
    for _ in 0..1000 {
        for leased in stage.t.take().await {
            let outcome = stage.t.perform(&leased).await;
            if !outbox(stage).await.is_empty() {
                return leased;
            }
            stage.t.settle(&leased, outcome).await;
        }
        stage.t.advance(millis(20)).await;
    }
    panic!("no message is written")
}

/// Returns the data of a message without its timestamp.
fn content(body: &Value) -> Value {
    let mut data = body["data"].clone();
    assert!(data.as_object_mut().unwrap().remove("timestamp").is_some(), "{body}");
    data
}

#[tokio::test]
async fn each_otp_request_is_sent_without_otp() {
    let receiver = Receiver::start().await;
    let stage = desks(&receiver).await;
    want_otps(&stage);
    stage.run_binding("B", "S1", json!({ "interval_ms": [60000, 60000] })).await;
    stage.t.run_for(secs(10)).await;
    let row = stage.binding("B").await;
    assert_eq!(row.phase, BindingPhase::WaitingOtp);
    let received = receiver.received();
    assert_eq!(received.len(), 1, "{received:?}");
    assert_eq!((received[0].path.as_str(), &received[0].body["type"]), ("/otp", &json!(OTP_WANTED)));
    let asked = |ask: i32, deadline: DateTime<Utc>| {
        json!({
            "event": "binding.otp_wanted", "binding_id": "B", "server_id": "S1", "account_id": "acct-B", "trx_id": "B.1",
            "ask": ask, "deadline": deadline,
        })
    };
    assert_eq!(content(&received[0].body), asked(1, row.otp_deadline.unwrap()));

    stage.submit_otp("B", "B.1", "000001").await.unwrap();
    stage.t.run_for(secs(10)).await;
    let row = stage.binding("B").await;
    assert_eq!((row.phase, row.otp_tries), (BindingPhase::WaitingOtp, 1));
    assert_eq!(receiver.received().len(), 2);
    assert_eq!(content(&receiver.received()[1].body), asked(2, row.otp_deadline.unwrap()));

    stage.submit_otp("B", "B.1", CODE).await.unwrap();
    stage.t.run_for(secs(10)).await;
    assert_eq!(stage.headers("B").await[0].status, TransactionStatus::Sukses);
    let received = receiver.received();
    assert_eq!(received.len(), 2, "the right one is not asked for again");
    for otp in [CODE, "000001"] {
        assert!(received.iter().all(|message| !String::from_utf8_lossy(&message.bytes).contains(otp)), "{received:?}");
    }
    assert_eq!(outbox(&stage).await, ["OTP_WANTED otp delivered", "OTP_WANTED otp delivered"]);
    stage.assert_judge_content();
}

#[tokio::test]
async fn unresolved_transaction_is_reported_once() {
    let receiver = Receiver::start().await;
    let stage = desks(&receiver).await;
    never_end(&stage);
    stage.run_binding("B", "S1", json!({ "processing_timeout_ms": 1000, "on_processing_timeout": "stop" })).await;
    stage.t.run_for(secs(300)).await;
    assert_eq!(stage.headers("B").await[0].status, TransactionStatus::Unresolved);
    assert!(stage.calls("B").await.iter().any(|call| call == "settle processing"));
    let received = receiver.received();
    assert_eq!(received.len(), 1, "{received:?}");
    assert_eq!((received[0].path.as_str(), &received[0].body["type"]), ("/unresolved", &json!(TRANSACTION_UNRESOLVED)));
    let data = content(&received[0].body);
    for (field, value) in [
        ("event", "binding.transaction_unresolved"),
        ("binding_id", "B"),
        ("server_id", "S1"),
        ("account_id", "acct-B"),
        ("trx_id", "B.1"),
    ] {
        assert_eq!(data[field], value, "{data}");
    }
    assert!(data["deadline"].is_string(), "{data}");
    assert_eq!(outbox(&stage).await, ["TRANSACTION_UNRESOLVED unresolved delivered"]);
}

#[tokio::test]
async fn without_channels_only_unresolved_is_reported() {
    let stage = ProviderStage::start().await;
    want_otps(&stage);
    stage.run_binding("B", "S1", json!({ "interval_ms": [60000, 60000] })).await;
    stage.t.run_for(secs(10)).await;
    assert_eq!(stage.binding("B").await.phase, BindingPhase::WaitingOtp);
    stage.submit_otp("B", "B.1", CODE).await.unwrap();
    stage.t.run_for(secs(10)).await;
    assert_eq!(stage.headers("B").await[0].status, TransactionStatus::Sukses);
    assert_eq!(stage.t.count("SELECT count(*) FROM outbox").await, 0);

    stage.turn_knobs(|knobs| knobs.otp_rate = "0".parse().unwrap());
    never_end(&stage);
    stage.run_binding("C", "S1", json!({ "processing_timeout_ms": 1000, "on_processing_timeout": "stop" })).await;
    stage.t.run_for(secs(30)).await;
    assert_eq!(outbox(&stage).await, ["TRANSACTION_UNRESOLVED log delivered"]);
}

#[tokio::test]
async fn crash_before_enqueue_sends_the_message_once() {
    let receiver = Receiver::start().await;
    let stage = desks(&receiver).await;
    want_otps(&stage);
    stage.run_binding("B", "S1", json!({})).await;
    let leased = die_once_it_is_written(&stage).await;
    // The follow-up jobs are not enqueued, and Redis loses all data.
    stage.t.redis::<()>(&["FLUSHALL"]).await;
    assert_eq!(outbox(&stage).await, ["OTP_WANTED otp pending"]);
    // A job whose id contains the reserved order instead of the binding.
    let order: OrderId = stage.t.texts("SELECT order_id FROM outbox").await[0].parse().unwrap();
    assert_eq!(order, id(NO_ORDER));
    let outbox_id = stage.t.count("SELECT id FROM outbox").await;
    reconciler::reconcile_once(&stage.t.app.maintenance).await.unwrap().unwrap();
    let waits = format!("notify:B:{outbox_id}");
    assert!(stage.t.timers().await.contains_key(&waits), "no {waits}");
    let job_of_the_order = NewJob::now(&SendNotification { subject: order.into(), outbox_id });
    stage.t.app.core.store.enqueue(&[job_of_the_order]).await.unwrap();
    // The cycle's job also runs again and finds its work done.
    stage.t.perform(&leased).await;
    stage.t.run_for(secs(10)).await;
    assert_eq!(receiver.received().len(), 1);
    assert_eq!(outbox(&stage).await, ["OTP_WANTED otp delivered"]);
    assert_eq!(stage.calls("B").await, ["start otp_wanted"]);
}

#[tokio::test]
async fn bindings_that_are_written_together_each_tell_their_own() {
    let receiver = Receiver::start().await;
    let stage = desks(&receiver).await;
    want_otps(&stage);
    for binding in ["B", "C"] {
        stage.run_binding(binding, "S1", json!({})).await;
    }
    let leased = stage.t.take().await;
    assert_eq!(leased.len(), 2);
    let (first, second) = tokio::join!(stage.t.perform(&leased[0]), stage.t.perform(&leased[1]));
    for (leased, outcome) in leased.iter().zip([first, second]) {
        stage.t.settle(leased, outcome).await;
    }
    stage.t.run_for(secs(10)).await;
    let mut told: Vec<String> = receiver.received().iter().map(|m| m.body["data"]["trx_id"].to_string()).collect();
    told.sort();
    assert_eq!(told, ["\"B.1\"", "\"C.1\""]);
}

#[tokio::test]
async fn otp_message_retries_until_the_otp_expires() {
    let receiver = Receiver::start().await;
    let stage = desks(&receiver).await;
    want_otps(&stage);
    receiver.fail(StatusCode::SERVICE_UNAVAILABLE, 2);
    stage.run_binding("B", "S1", json!({ "otp_timeout_ms": 600_000 })).await;
    stage.t.run_for(secs(30)).await;
    let received = receiver.received();
    assert_eq!(received.iter().map(|m| m.answer).collect::<Vec<_>>(), [503, 503, 204]);
    assert!(received.iter().all(|m| m.id == received[0].id), "{received:?}");

    receiver.fail(StatusCode::SERVICE_UNAVAILABLE, 100);
    stage.run_binding("C", "S1", json!({ "otp_timeout_ms": 60000, "on_otp_timeout": "stop" })).await;
    stage.t.run_for(secs(90)).await;
    assert_eq!(outbox(&stage).await, ["OTP_WANTED otp delivered", "OTP_WANTED otp expired"]);
    let dead = stage.t.app.core.store.list_jobs(jobs::queues::NOTIFY, JobState::Dead, 0, 10).await.unwrap();
    assert_eq!(dead.len(), 0, "it has expired and was not given up");
}

#[tokio::test]
async fn refused_message_is_dead_and_can_be_replayed() {
    let receiver = Receiver::start().await;
    let stage = desks(&receiver).await;
    want_otps(&stage);
    // An order may have the same id as the binding; the messages stay separate.
    stage.t.order("B").await;
    receiver.fail(StatusCode::GONE, 1);
    stage.run_binding("B", "S1", json!({ "otp_timeout_ms": 600_000 })).await;
    stage.t.run_for(secs(10)).await;
    assert_eq!(outbox(&stage).await, ["OTP_WANTED otp dead"]);

    let of_order = OutboxFilter { order: Some(id("B")), limit: 10, ..OutboxFilter::default() };
    assert_eq!(redeliver::count_messages(&stage.t.app.core.db, &of_order).await.unwrap(), 0);
    let of_binding = OutboxFilter { binding: Some(binding_id("B")), limit: 10, ..OutboxFilter::default() };
    assert_eq!(redeliver::count_messages(&stage.t.app.core.db, &of_binding).await.unwrap(), 1);
    let row = redeliver::list_messages(&stage.t.app.core.db, &of_binding).await.unwrap().remove(0);
    assert_eq!((&row.subject, row.state), (&MessageSubject::Binding(binding_id("B")), OutboxState::Dead));
    let shown = serde_json::to_value(&row).unwrap();
    assert_eq!((&shown["binding_id"], shown.get("order_id")), (&json!("B"), None));

    let author = DecisionAuthor { who: by("operator:test"), why: None };
    assert!(redeliver::replay_message(&stage.t.app.desk, &row, &author).await.unwrap());
    stage.t.run_for(secs(10)).await;
    let received = receiver.received();
    assert_eq!(received.iter().map(|m| m.answer).collect::<Vec<_>>(), [410, 204]);
    assert_eq!(received[0].id, received[1].id);
    let noted = "SELECT count(*) FROM order_events WHERE reason = 'REQUEUED_BY_HAND'";
    assert_eq!(stage.t.count(noted).await, 0, "the order's history says nothing of it");
}

#[tokio::test]
async fn reserved_order_id_is_refused() {
    let t = TestApp::start().await;
    let pickup = json!({ "latitude": -6.2, "longitude": 106.8 });
    let new: NewOrder =
        serde_json::from_value(json!({ "order_id": NO_ORDER, "service_type": "RIDE", "pickup": pickup })).unwrap();
    let refused = create::create_order(&t.app.orders, id(NO_ORDER), &new, &by("producer:shop")).await.unwrap_err();
    assert!(matches!(refused, CreateError::Invalid(_)), "{refused}");
    let by_sql = sqlx::query("SELECT dispatchq_create_order($1, 'RIDE', -6.2, 106.8)").bind(NO_ORDER);
    let refused = by_sql.execute(&t.app.core.db).await.unwrap_err();
    let refused = refused.as_database_error().unwrap();
    assert_eq!(refused.code().as_deref(), Some("22023"), "{refused}");
    assert_eq!(refused.message(), "order_id must not be __binding__, which is reserved");
    assert_eq!(t.count("SELECT count(*) FROM orders").await, 0);
    // SQL can insert the reserved id past the check. Such an order gets its messages like any other order.
    t.sql(&format!(
        "INSERT INTO orders (id, service_type, pickup_lat, pickup_lng, status, next_attempt_at, lifetime_deadline, created_at, updated_at)
         SELECT '{NO_ORDER}', 'RIDE', -6.2, 106.8, 'DISPATCHING', now, now + interval '1 hour', now, now FROM dispatchq_now() now"
    ))
    .await;
    t.sql(&format!(
        "INSERT INTO outbox (order_id, kind, channel, dedupe_key, payload, next_attempt_at, expires_at, created_at)
         SELECT '{NO_ORDER}', 'NEWS', 'log', '', '{{}}', now, now + interval '1 hour', now FROM dispatchq_now() now"
    ))
    .await;
    reconciler::reconcile_in_full(&t.app.maintenance).await.unwrap().unwrap();
    t.run_due().await;
    assert_eq!(t.texts("SELECT state FROM outbox WHERE kind = 'NEWS'").await, ["delivered"]);
}
