//! Callbacks of the partner: signed, repeated, duplicated, withheld, and wrong when the knobs ask for it.

use std::sync::{Arc, Mutex};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use standardwebhooks::Webhook;
use tokio::net::TcpListener;

use super::*;

/// A server that receives the callbacks.
struct Us {
    url: String,
    inner: Arc<Mutex<Inner>>,
    server: tokio::task::JoinHandle<std::io::Result<()>>,
}

#[derive(Default)]
struct Inner {
    /// Number of callbacks that are first answered with 500.
    failures: usize,
    received: Vec<Received>,
}

#[derive(Debug, Clone)]
struct Received {
    id: String,
    signed: bool,
    body: Value,
}

impl Received {
    fn text(&self, field: &str) -> &str {
        self.body[field].as_str().unwrap_or("none")
    }
}

impl Us {
    async fn start(failures: usize) -> Self {
        let inner = Arc::new(Mutex::new(Inner { failures, received: Vec::new() }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/api/v1/callbacks/bbd", listener.local_addr().unwrap());
        let router = Router::new().route("/api/v1/callbacks/bbd", post(receive)).with_state(inner.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, inner, server }
    }

    fn received(&self) -> Vec<Received> {
        self.inner.lock().unwrap().received.clone()
    }

    async fn reach(&self, count: usize) -> Vec<Received> {
        eventually("callbacks", || async { self.received().len() >= count }).await;
        self.received()
    }

    /// Starts a partner that sends its callbacks to this server.
    async fn partner(&self, speed: f64, knobs: PartnerKnobs) -> Partner {
        start(speed, PartnerKnobs { callback_url: Some(self.url.clone()), ..knobs }).await
    }
}

impl Drop for Us {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn receive(State(inner): State<Arc<Mutex<Inner>>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let webhook = Webhook::new(&PartnerSimOptions::default().callback_secret).unwrap();
    let received = Received {
        id: headers["webhook-id"].to_str().unwrap().to_owned(),
        signed: webhook.verify(&body, &headers).is_ok(),
        body: serde_json::from_slice(&body).unwrap(),
    };
    let mut inner = inner.lock().unwrap();
    inner.received.push(received);
    if inner.failures > 0 {
        inner.failures -= 1;
        return StatusCode::INTERNAL_SERVER_ERROR;
    }
    StatusCode::OK
}

#[tokio::test]
async fn each_event_is_told_signed_and_with_what_is_known() {
    let us = Us::start(0).await;
    let partner = us.partner(FAST, smooth()).await;
    let booking = partner.booked("ORD-1:1").await;
    let received = us.reach(4).await;
    let mut kinds: Vec<_> = received.iter().map(|r| r.text("type")).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["completed", "driver_assigned", "job_id_assigned", "picked_up"]);
    let status = partner.poll(&booking).await.body;
    for callback in &received {
        assert!(callback.signed, "{callback:?}");
        assert_eq!(callback.id, callback.text("event_id"));
        assert_eq!((callback.text("booking_id"), callback.text("reference")), (booking.as_str(), "ORD-1:1"));
        assert_eq!(callback.body["job_id"], status["job_id"]);
        chrono::DateTime::parse_from_rfc3339(callback.text("occurred_at")).unwrap();
        if callback.text("type") == "job_id_assigned" {
            assert!(callback.body.get("driver_id").is_none(), "{callback:?}");
        } else {
            assert_eq!(callback.body["driver_id"], status["driver_id"]);
        }
    }
    let ids: std::collections::BTreeSet<_> = received.iter().map(|r| &r.id).collect();
    assert_eq!(ids.len(), 4);
    eventually("all are counted", || async { partner.sim.read_report().counters.callbacks_sent == 4 }).await;
}

#[tokio::test]
async fn endings_are_told_by_their_names() {
    let us = Us::start(0).await;
    let never_found = us.partner(FAST, PartnerKnobs { driver_rate: EventRate::NEVER, ..smooth() }).await;
    never_found.booked("ORD-1:1").await;
    us.reach(2).await;
    let deserted = us.partner(FAST, PartnerKnobs { driver_cancel_rate: EventRate::ALWAYS, ..smooth() }).await;
    deserted.booked("ORD-2:1").await;
    us.reach(5).await;
    let slow = us.partner(1.0, PartnerKnobs { job_id_delay: "1h".parse().unwrap(), ..smooth() }).await;
    let cancelled = slow.booked("ORD-3:1").await;
    slow.cancel(&cancelled).await;
    slow.cancel(&cancelled).await;
    let received = us.reach(6).await;
    let told = |reference: &str| {
        let kinds = received.iter().filter(|r| r.text("reference") == reference).map(|r| r.text("type"));
        let mut kinds: Vec<_> = kinds.collect();
        kinds.sort_unstable();
        kinds
    };
    assert_eq!(told("ORD-1:1"), ["job_id_assigned", "no_driver"]);
    assert_eq!(told("ORD-2:1"), ["driver_assigned", "driver_cancelled", "job_id_assigned"]);
    assert_eq!(told("ORD-3:1"), ["booking_cancelled"]);
    assert!(received[5].body.get("job_id").is_none());
}

/// Knobs for a job id without delay, and for no further event.
fn job_id_only() -> PartnerKnobs {
    PartnerKnobs { driver_delay: "7days".parse().unwrap(), ..smooth() }
}

#[tokio::test]
async fn a_callback_is_repeated_until_it_is_taken() {
    let us = Us::start(3).await;
    let partner = us.partner(100.0, job_id_only()).await;
    partner.booked("ORD-1:1").await;
    let received = us.reach(4).await;
    assert!(received.iter().all(|r| r.signed && r.id == received[0].id && r.body == received[0].body), "{received:?}");
    eventually("it is taken", || async { partner.sim.read_report().counters.callbacks_sent == 1 }).await;
    assert_eq!(partner.sim.read_report().counters.callbacks_refused, 3);
}

#[tokio::test]
async fn a_callback_nobody_takes_is_given_up() {
    let us = Us::start(usize::MAX).await;
    let partner = us.partner(1000.0, job_id_only()).await;
    partner.booked("ORD-1:1").await;
    eventually("given up", || async { partner.sim.read_report().counters.callbacks_given_up == 1 }).await;
    assert_eq!(us.received().len(), 6);
    // A closed port counts as a failed callback too.
    partner.turn(json!({ "callback_url": "http://127.0.0.1:1/" })).await;
    partner.booked("ORD-2:1").await;
    eventually("given up", || async { partner.sim.read_report().counters.callbacks_given_up == 2 }).await;
    assert_eq!(partner.sim.read_report().counters.callbacks_refused, 12);
}

#[tokio::test]
async fn a_doubled_callback_has_the_same_event_id() {
    let us = Us::start(0).await;
    let partner = us.partner(100.0, PartnerKnobs { doubled_callback_rate: EventRate::ALWAYS, ..job_id_only() }).await;
    partner.booked("ORD-1:1").await;
    let received = us.reach(2).await;
    assert!(received.iter().all(|r| r.signed));
    assert_eq!((&received[0].id, &received[0].body), (&received[1].id, &received[1].body));
    eventually("counted", || async { partner.sim.read_report().counters.callbacks_doubled == 1 }).await;
}

#[tokio::test]
async fn withheld_callbacks_never_come_and_polling_still_finds_out() {
    let us = Us::start(0).await;
    let partner = us.partner(FAST, PartnerKnobs { job_id_callback_rate: EventRate::NEVER, ..smooth() }).await;
    let booking = partner.booked("ORD-1:1").await;
    partner.reaches(&booking, "completed").await;
    let received = us.reach(3).await;
    assert!(received.iter().all(|r| r.text("type") != "job_id_assigned"), "{received:?}");
    assert_eq!(partner.sim.read_report().counters.callbacks_withheld, 1);

    partner.turn(json!({ "job_id_callback_rate": 1.0, "callback_rate": 0.0 })).await;
    partner.booked("ORD-2:1").await;
    eventually("withheld", || async { partner.sim.read_report().counters.callbacks_withheld == 4 }).await;
    let received = us.reach(4).await;
    assert_eq!((received.len(), received[3].text("type")), (4, "job_id_assigned"));
}

#[tokio::test]
async fn forged_callback_precedes_the_real_one() {
    let us = Us::start(0).await;
    let partner = us.partner(100.0, PartnerKnobs { bad_signature_rate: EventRate::ALWAYS, ..job_id_only() }).await;
    partner.booked("ORD-1:1").await;
    let received = us.reach(2).await;
    assert_eq!((received[0].signed, received[1].signed), (false, true));
    assert_eq!(received[0].id, received[1].id);
    assert_ne!(received[0].body["job_id"], received[1].body["job_id"]);
}

#[tokio::test]
async fn wrong_callbacks_are_signed_and_come_beside_the_right_ones() {
    let us = Us::start(0).await;
    let wrong = PartnerKnobs {
        unknown_booking_rate: EventRate::ALWAYS,
        foreign_job_id_rate: EventRate::ALWAYS,
        ..job_id_only()
    };
    let partner = us.partner(100.0, wrong).await;
    let booking = partner.booked("ORD-1:1").await;
    let [unknown, right, foreign] = &us.reach(3).await[..] else { panic!("not three") };
    assert!(unknown.signed && right.signed && foreign.signed);
    assert_ne!(unknown.text("booking_id"), booking);
    assert_eq!((right.text("booking_id"), foreign.text("booking_id")), (booking.as_str(), booking.as_str()));
    assert_eq!(right.body["job_id"], partner.poll(&booking).await.body["job_id"]);
    // The foreign job id belongs to the order's next booking.
    let foreign = foreign.body["job_id"].clone();
    assert_ne!(foreign, right.body["job_id"]);
    let next = partner.booked("ORD-1:2").await;
    eventually("the next job id", || async { partner.poll(&next).await.body["job_id"] == foreign }).await;
}

#[tokio::test]
async fn callbacks_may_precede_the_answer() {
    let us = Us::start(0).await;
    let partner = us.partner(1000.0, PartnerKnobs { lost_answer_rate: EventRate::ALWAYS, ..smooth() }).await;
    partner.try_book("ORD-1:1").await.unwrap_err();
    assert_eq!(us.reach(1).await[0].text("reference"), "ORD-1:1");
}
