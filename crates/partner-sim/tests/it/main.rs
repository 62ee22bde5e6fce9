//! The simulated partner over real HTTP: it follows docs/PARTNER.md and fails as its knobs specify.

mod bookings;
mod callbacks;
mod contract;
mod faults;

use std::time::Duration;

use partner_sim::{PartnerKnobs, PartnerSim, PartnerSimOptions, values::EventRate};
use reqwest::{Method, header::RETRY_AFTER};
use serde_json::{Value, json};

const KEY: &str = "partner-sim-key";

/// Returns knobs with which every booking finds a driver who stays, and every callback is sent.
fn smooth() -> PartnerKnobs {
    PartnerKnobs {
        driver_rate: EventRate::ALWAYS,
        driver_cancel_rate: EventRate::NEVER,
        job_id_callback_rate: EventRate::ALWAYS,
        callback_rate: EventRate::ALWAYS,
        ..PartnerKnobs::default()
    }
}

/// Returns the knobs of [`smooth`], but a booking advances only by the steps of the test.
fn patient() -> PartnerKnobs {
    PartnerKnobs { job_id_delay: "7days".parse().unwrap(), ..smooth() }
}

/// Converts a literal to a rate.
fn rate(rate: f64) -> EventRate {
    rate.try_into().unwrap()
}

/// Speed at which a trip takes less than a second.
const FAST: f64 = 5_000.0;

async fn start(speed: f64, knobs: PartnerKnobs) -> Partner {
    // The speed also shortens this time; a week outlasts the test.
    let keep_finished = secs(7 * 24 * 3600);
    Partner::start(&PartnerSimOptions { speed, knobs, keep_finished, ..PartnerSimOptions::default() }).await
}

/// A running partner and a client for it.
struct Partner {
    sim: PartnerSim,
    client: reqwest::Client,
}

#[derive(Debug, Clone, PartialEq)]
struct Answer {
    status: u16,
    body: Value,
    retry_after: Option<String>,
}

impl Answer {
    fn error(&self) -> (u16, &str) {
        (self.status, self.body["error_code"].as_str().unwrap_or("none"))
    }

    fn booking_id(&self) -> String {
        self.body["booking_id"].as_str().unwrap_or_else(|| panic!("no booking_id in {self:?}")).to_owned()
    }
}

fn request(reference: &str) -> Value {
    let (order, attempt) = reference.rsplit_once(':').unwrap();
    json!({
        "reference": reference,
        "order_id": order,
        "attempt": attempt.parse::<u32>().unwrap(),
        "service_type": "TAXI",
        "pickup": { "latitude": -6.2, "longitude": 106.8 },
    })
}

impl Partner {
    async fn start(options: &PartnerSimOptions) -> Self {
        Self { sim: PartnerSim::start(options).await.unwrap(), client: client(secs(20)) }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        key: &str,
        idempotency_key: &str,
        body: &Value,
    ) -> reqwest::Result<Answer> {
        send(&self.client, method, &format!("{}{path}", self.sim.url()), key, idempotency_key, body).await
    }

    async fn try_book(&self, reference: &str) -> reqwest::Result<Answer> {
        self.send(Method::POST, "/bookings", KEY, reference, &request(reference)).await
    }

    async fn book(&self, reference: &str) -> Answer {
        self.try_book(reference).await.unwrap()
    }

    /// Makes a booking that must be new, and returns its id.
    async fn booked(&self, reference: &str) -> String {
        let answer = self.book(reference).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.booking_id()
    }

    async fn try_poll(&self, booking_id: &str) -> reqwest::Result<Answer> {
        let path = format!("/job-status?booking_id={booking_id}");
        self.send(Method::GET, &path, KEY, "", &Value::Null).await
    }

    async fn poll(&self, booking_id: &str) -> Answer {
        self.try_poll(booking_id).await.unwrap()
    }

    async fn cancel(&self, booking_id: &str) -> Answer {
        let path = format!("/bookings/{booking_id}/cancel");
        self.send(Method::POST, &path, KEY, "", &Value::Null).await.unwrap()
    }

    /// Waits until a booking has this status.
    async fn reaches(&self, booking_id: &str, status: &str) {
        eventually(status, || async { self.poll(booking_id).await.body["status"] == status }).await;
    }

    /// Sends a request to `/_sim`, which answers even during an outage.
    async fn control(&self, method: Method, path: &str, body: &Value) -> Answer {
        send(&self.client, method, &format!("{}/_sim{path}", self.sim.control_url()), "", "", body).await.unwrap()
    }

    async fn turn(&self, knobs: Value) {
        let answer = self.control(Method::POST, "/knobs", &knobs).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

fn client(timeout: Duration) -> reqwest::Client {
    // Fails in the second test of a process, because the provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().timeout(timeout).build().unwrap()
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Waits until the simulator fulfils the condition.
async fn eventually<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let reached = async {
        while !condition().await {
            tokio::time::sleep(millis(20)).await;
        }
    };
    tokio::time::timeout(secs(180), reached).await.unwrap_or_else(|_| panic!("not within three minutes: {what}"));
}

async fn send(
    client: &reqwest::Client,
    method: Method,
    url: &str,
    key: &str,
    idempotency_key: &str,
    body: &Value,
) -> reqwest::Result<Answer> {
    let mut request = client.request(method, url).header("idempotency-key", idempotency_key);
    if !key.is_empty() {
        request = request.bearer_auth(key);
    }
    if !body.is_null() {
        request = request.json(body);
    }
    let answer = request.send().await?;
    let status = answer.status().as_u16();
    let retry_after = answer.headers().get(RETRY_AFTER).map(|v| v.to_str().unwrap().to_owned());
    let body = serde_json::from_slice(&answer.bytes().await?).unwrap_or_default();
    Ok(Answer { status, body, retry_after })
}
