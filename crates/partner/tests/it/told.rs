//! Reports of the job id retrieval in the log, in messages and in the order.

use model::messages::ProducerEvent;
use serde_json::json;

use accounts::api_keys::AccountRole;
use model::order::OrderStatus;
use settings::{Config, ProducerConfig};
use test_support::{
    LogLines, Receiver,
    partnership::{Partnership, patient, silent},
    secs,
};

fn log_warnings() -> LogLines {
    let lines = LogLines::default();
    tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing::Level::WARN).with_writer(lines.clone()).init();
    lines
}

#[tokio::test]
async fn job_id_retries_log_warnings_then_one_error() {
    let lines = log_warnings();
    let p = Partnership::start(silent()).await;
    p.booked("ORD-1", "PAID").await;
    p.run_for(secs(5)).await;
    let [first] = lines.with("Retrying the job id retrieval").try_into().unwrap();
    for told in ["WARN", "order.id=ORD-1", "attempt=1", "elapsed=5s", "error=\"the job id is not assigned yet\""] {
        assert!(first.contains(told), "{told}: {first}");
    }
    assert_eq!(lines.with("Failed to retrieve the job id"), Vec::<String>::new());

    p.run_for(secs(1796)).await;
    assert_eq!(p.status("ORD-1").await, OrderStatus::CancelledBySystemAfterPayment);
    let retries = lines.with("Retrying the job id retrieval");
    assert_eq!(retries.len() as u64, p.polls());
    let [last] = lines.with("Failed to retrieve the job id").try_into().unwrap();
    let total = format!("total_attempts={} ", p.polls());
    for told in ["ERROR", "order.id=ORD-1", &total, "total_duration=30m", "error=\"no job id in time\""] {
        assert!(last.contains(told), "{told}: {last}");
    }
    p.assert_at_rest().await;
}

#[tokio::test]
async fn unanswered_booking_warns_on_each_retry() {
    let lines = log_warnings();
    let p = Partnership::start(silent()).await;
    p.sim.change_knobs(|knobs| knobs.down = true).unwrap();
    p.taxi("ORD-1", "PAID").await;
    p.run_due().await;
    let [first] = lines.with("Retrying the job id retrieval").try_into().unwrap();
    assert!(first.contains("order.id=ORD-1 attempt=1 elapsed=0s"), "{first}");
}

// Rule L5: A producer that subscribes to `order.job_id_retrieved` and `order.cancelled_after_payment_no_job_id` gets
// each once, signed.
#[tokio::test]
async fn subscribed_job_id_events_reach_the_producer() {
    let receiver = Receiver::start().await;
    let subscribe = |config: &mut Config, name: &str, events: &[ProducerEvent]| {
        let subscription = ProducerConfig {
            url: Some(receiver.url(&format!("/{name}"))),
            secret: Some("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3".to_owned()),
            events: events.to_vec(),
            allow_private: true,
            ..ProducerConfig::default()
        };
        config.producers.insert(name.to_owned(), subscription);
    };
    let p = Partnership::with(silent(), |config| {
        subscribe(config, "test", &[ProducerEvent::JobIdRetrieved, ProducerEvent::CancelledAfterPayment]);
        subscribe(config, "other", &ProducerEvent::ALL);
    })
    .await;
    p.booked("CALLED", "PAID").await;
    p.tell("CALLED", 1, "job_id_assigned", json!({ "job_id": "J-1" })).await;
    let booking_id = p.booked("ASKED", "PAID").await;
    assert!(p.sim.take_step(&booking_id));
    p.run_for(secs(10)).await;
    assert_eq!(p.status("ASKED").await, OrderStatus::Assigned);
    p.cancel("CALLED").await.unwrap();
    p.cancel("ASKED").await.unwrap();
    p.booked("NEVER", "PAID").await;
    p.run_for(secs(1801)).await;
    assert_eq!(p.status("NEVER").await, OrderStatus::CancelledBySystemAfterPayment);

    let received = receiver.received();
    assert!(received.iter().all(|message| message.path == "/test"), "orders of others are told to no one else");
    let key = standardwebhooks::Webhook::new("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3").unwrap();
    for message in &received {
        key.verify(&message.bytes, &message.headers).unwrap();
        assert_eq!((message.body["id"].as_str(), &message.body["version"]), (Some(message.id.as_str()), &json!(1)));
        assert!(message.body["timestamp"].is_string(), "{}", message.body);
    }
    let mut told: Vec<_> = received
        .iter()
        .map(|message| {
            let data = &message.body["data"];
            let text = |name: &str| data[name].as_str().unwrap_or_default().to_owned();
            (text("order_id"), message.body["type"].as_str().unwrap().to_owned(), text("method") + &text("action"))
        })
        .collect();
    told.sort();
    let event = |order: &str, kind: &str, more: &str| (order.to_owned(), kind.to_owned(), more.to_owned());
    assert_eq!(
        told,
        [
            event("ASKED", "order.job_id_retrieved", "proactive"),
            event("CALLED", "order.job_id_retrieved", "callback"),
            event("NEVER", "order.cancelled_after_payment_no_job_id", "MANUAL_REFUND_REQUIRED"),
        ]
    );
    p.assert_sound().await;
}

/// Both bookings were polled. The event, the alert and the row contain the sum of their polls.
#[tokio::test]
async fn total_attempts_sum_the_polls_of_all_bookings() {
    let p = Partnership::with(silent(), |config| config.notifications.producer = vec!["log".to_owned()]).await;
    p.booked("ORD-1", "PAID").await;
    p.run_for(secs(20)).await;
    let of_first = p.polls();
    assert!(of_first >= 2, "{of_first}");
    assert_eq!(p.tell("ORD-1", 1, "no_driver", json!({})).await, "processed");
    p.run_for(secs(1790)).await;
    assert_eq!(p.status("ORD-1").await, OrderStatus::CancelledBySystemAfterPayment);
    let total = p.polls();
    assert!(total > of_first && p.snapshot("ORD-1").await.order.attempt_no > 1);
    let told = "SELECT kind || ' ' || (payload->>'total_attempts') FROM outbox
                WHERE payload->>'total_attempts' IS NOT NULL ORDER BY kind";
    let told = p.texts(told).await;
    assert_eq!(
        told,
        [format!("MANUAL_REFUND_REQUIRED {total}"), format!("order.cancelled_after_payment_no_job_id {total}")]
    );
    assert_eq!(p.snapshot("ORD-1").await.order.job_id_asks, i32::try_from(total).unwrap());
}

#[tokio::test]
async fn order_is_found_by_every_job_id() {
    let p = Partnership::start(patient()).await;
    let support = p.key(AccountRole::Support).await;
    let first_booking = p.assigned("ORD-1", "PAID").await;
    let first_job = p.snapshot("ORD-1").await.order.job_id.unwrap();
    let shown = p.api.get("/api/v1/orders/ORD-1", &support).await;
    assert_eq!((shown.text("booking_id"), shown.text("job_id")), (first_booking.as_str(), first_job.as_str()));

    assert_eq!(p.tell("ORD-1", 1, "no_driver", json!({})).await, "processed");
    p.run_for(secs(20)).await;
    let second_booking = p.booking_id("ORD-1", 2).await;
    p.sim_steps(&second_booking, "ORD-1", OrderStatus::Assigned).await;
    let second_job = p.snapshot("ORD-1").await.order.job_id.unwrap();
    assert_eq!(p.api.get("/api/v1/orders/ORD-1", &support).await.text("booking_id"), second_booking);
    for job_id in [first_job, second_job] {
        let found = p.api.get(&format!("/api/v1/orders?job_id={job_id}"), &support).await;
        assert_eq!(found.body["orders"].as_array().map(Vec::len), Some(1), "{job_id}: {found:?}");
        assert_eq!(found.body["orders"][0]["order_id"], "ORD-1", "{job_id}");
    }
}
