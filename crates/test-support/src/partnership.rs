//! dispatchq with its API and a simulated partner.

use std::{
    ops::Deref,
    sync::atomic::{AtomicU64, Ordering},
};

use chrono::Utc;
use partner_sim::{PartnerKnobs, PartnerSim, PartnerSimOptions, values::EventRate};
use serde_json::{Value, json};
use standardwebhooks::Webhook;
use tokio_util::sync::CancellationToken;

use crate::{Answer, Api, TestApp, eventually, millis, secs};
use app::App;
use foundation::outbound;
use model::order::{Booking, BookingState, OrderStatus};
use settings::{Config, PartnerConfig};
use workers::worker::process;

pub const PARTNER: &str = "bbd";
pub const SERVICE: &str = "TAXI";
const KEY: &str = "partner-sim-key";
pub const SECRET: &str = "whsec_ZGlzcGF0Y2hxIHBhcnRuZXIgc2ltdWxhdG9y";
pub const ANOTHER_SECRET: &str = "whsec_b25lIG9mIG9sZCBvciBvbmUgb2YgbmV3";

/// Returns the partner's reference for an attempt.
pub fn reference(order: &str, attempt: i32) -> String {
    format!("{order}:{attempt}")
}

/// Returns knobs with which no booking advances without the test. Each booking finds a driver who stays, and callbacks
/// are sent without delay.
pub fn patient() -> PartnerKnobs {
    let never = "1day";
    PartnerKnobs {
        job_id_delay: never.parse().unwrap(),
        driver_delay: never.parse().unwrap(),
        no_driver_delay: never.parse().unwrap(),
        pickup_delay: never.parse().unwrap(),
        trip_duration: never.parse().unwrap(),
        callback_delay: "0s".parse().unwrap(),
        driver_rate: EventRate::ALWAYS,
        driver_cancel_rate: EventRate::NEVER,
        job_id_callback_rate: EventRate::ALWAYS,
        callback_rate: EventRate::ALWAYS,
        ..PartnerKnobs::default()
    }
}

/// Returns the knobs of [`patient`] without callbacks.
pub fn silent() -> PartnerKnobs {
    PartnerKnobs { job_id_callback_rate: EventRate::NEVER, callback_rate: EventRate::NEVER, ..patient() }
}

/// Returns the configuration of a partner at this address.
pub fn configured(url: &str) -> PartnerConfig {
    let config = json!({ "url": url, "api_key": KEY, "callback_secret": SECRET });
    serde_json::from_value(config).unwrap()
}

/// dispatchq with a partner. The test moves the clock of dispatchq, or it is real; the partner always uses real time.
#[derive(Debug)]
pub struct Partnership {
    pub t: TestApp,
    pub sim: PartnerSim,
    pub api: Api,
    client: reqwest::Client,
    events: AtomicU64,
}

impl Deref for Partnership {
    type Target = TestApp;

    fn deref(&self) -> &TestApp {
        &self.t
    }
}

impl Partnership {
    /// Starts on moved time.
    pub async fn start(knobs: PartnerKnobs) -> Self {
        Self::with(knobs, |_| {}).await
    }

    /// Like [`start`](Self::start), but changes the configuration first.
    pub async fn with(knobs: PartnerKnobs, configure: impl FnOnce(&mut Config)) -> Self {
        let sim = PartnerSim::start(&PartnerSimOptions { knobs, ..PartnerSimOptions::default() }).await.unwrap();
        let t = TestApp::with(|config| {
            serve_by(config, &sim);
            configure(config);
        })
        .await;
        Self::of(t, sim).await
    }

    /// Starts on real time, with a partner that runs `speed` times as fast.
    pub async fn on_real_time(speed: f64, knobs: PartnerKnobs, configure: impl FnOnce(&mut Config)) -> Self {
        // The speed also shortens this time; a week outlasts the test.
        let keep_finished = secs(7 * 24 * 3600);
        let options = PartnerSimOptions { knobs, speed, keep_finished, ..PartnerSimOptions::default() };
        let sim = PartnerSim::start(&options).await.unwrap();
        let t = TestApp::on_real_time(|config| {
            serve_by(config, &sim);
            configure(config);
        })
        .await;
        Self::of(t, sim).await
    }

    async fn of(t: TestApp, sim: PartnerSim) -> Self {
        let api = Api::start(&t.app).await;
        let url = api.url(&format!("/api/v1/callbacks/{PARTNER}"));
        sim.change_knobs(|knobs| knobs.callback_url = Some(url)).unwrap();
        Self { t, sim, api, client: outbound::build_client(secs(10)).unwrap(), events: AtomicU64::new(0) }
    }

    /// Replaces the application, as a process restart does. The new one knows only the partner state that is in Redis.
    pub fn restart(&mut self) {
        self.t.app = self.t.reconfigured(|_| {});
    }

    /// Replaces the partner by a new one without bookings. Callbacks still use the first partner's settings.
    pub async fn replace_partner(&mut self, knobs: PartnerKnobs) {
        self.sim = PartnerSim::start(&PartnerSimOptions { knobs, ..PartnerSimOptions::default() }).await.unwrap();
        self.t.app = self.t.reconfigured(|config| serve_by(config, &self.sim));
    }

    /// Starts a worker in this process. It runs until the returned value is dropped.
    pub fn work(&self) -> Working {
        work(&self.app)
    }

    pub async fn taxi(&self, order: &str, payment: &str) {
        self.order_of(order, SERVICE, payment).await;
    }

    /// Creates an order and makes its first booking at the partner. Returns the booking id.
    pub async fn booked(&self, order: &str, payment: &str) -> String {
        self.taxi(order, payment).await;
        self.run_due().await;
        self.booking_id(order, 1).await
    }

    /// Creates an order whose partner has reported a job id for its first booking.
    pub async fn assigned(&self, order: &str, payment: &str) -> String {
        let booking_id = self.booked(order, payment).await;
        self.sim_steps(&booking_id, order, OrderStatus::Assigned).await;
        booking_id
    }

    /// Advances the booking at the partner by one step and waits until its callback has changed the order.
    pub async fn sim_steps(&self, booking_id: &str, order: &str, status: OrderStatus) {
        assert!(self.sim.take_step(booking_id));
        self.reaches(order, status).await;
    }

    pub async fn reaches(&self, order: &str, status: OrderStatus) {
        eventually(status.as_str(), || async { self.status(order).await == status }).await;
    }

    pub async fn booking(&self, order: &str, attempt: i32) -> Booking {
        let s = self.snapshot(order).await;
        s.booking_of_attempt(attempt)
            .cloned()
            .unwrap_or_else(|| panic!("{order} has no booking {attempt}: {:?}", s.bookings))
    }

    pub async fn booking_id(&self, order: &str, attempt: i32) -> String {
        let booking = self.booking(order, attempt).await;
        booking.booking_id.clone().unwrap_or_else(|| panic!("the partner has not answered: {booking:?}"))
    }

    /// Returns the states of an order's bookings, in order.
    pub async fn booking_states(&self, order: &str) -> Vec<BookingState> {
        self.snapshot(order).await.bookings.iter().map(|b| b.state).collect()
    }

    pub fn lose_answers(&self, rate: EventRate) {
        self.sim.change_knobs(|knobs| knobs.lost_answer_rate = rate).unwrap();
    }

    /// Returns the booking as the partner reports it.
    pub async fn at_partner(&self, booking_id: &str) -> Value {
        let url = format!("{}/_sim/bookings/{booking_id}", self.sim.control_url());
        self.client.get(url).send().await.unwrap().json().await.unwrap()
    }

    /// Returns how often dispatchq has polled the partner about bookings.
    pub fn polls(&self) -> u64 {
        self.sim.read_report().counters.polls
    }

    /// Builds the callback that the partner would send for an attempt's booking. `fields` override its own fields.
    pub async fn callback(&self, order: &str, attempt: i32, kind: &str, fields: Value) -> Value {
        let number = self.events.fetch_add(1, Ordering::SeqCst);
        let booking_id = self.snapshot(order).await.booking_of_attempt(attempt).and_then(|b| b.booking_id.clone());
        let mut body = json!({
            "event_id": format!("E-{number}"),
            "type": kind,
            "booking_id": booking_id.unwrap_or_else(|| format!("B-{order}-{attempt}")),
            "reference": reference(order, attempt),
            "occurred_at": Utc::now(),
        });
        for (name, value) in fields.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        body
    }

    /// Sends a callback that dispatchq must accept, and returns the resulting status.
    pub async fn tell(&self, order: &str, attempt: i32, kind: &str, fields: Value) -> String {
        let body = self.callback(order, attempt, kind, fields).await;
        let answer = self.send(&body).await;
        assert_eq!(answer.status, 200, "{body}: {answer:?}");
        answer.text("status").to_owned()
    }

    /// Sends a callback with a valid signature and the current time.
    pub async fn send(&self, body: &Value) -> Answer {
        self.send_signed(PARTNER, body, SECRET, Utc::now().timestamp()).await
    }

    /// Sends a callback to this partner's path, signed with `secret` at `at` (Unix seconds).
    pub async fn send_signed(&self, partner: &str, body: &Value, secret: &str, at: i64) -> Answer {
        let (id, text) = (body["event_id"].as_str().unwrap_or("none"), body.to_string());
        let signature = Webhook::new(secret).unwrap().sign(id, at, text.as_bytes()).unwrap();
        let headers = [("webhook-id", id), ("webhook-timestamp", &at.to_string()), ("webhook-signature", &signature)];
        self.send_with(partner, &text, &headers).await
    }

    /// Sends a callback with these headers.
    pub async fn send_with(&self, partner: &str, body: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = self.client.post(self.api.url(&format!("/api/v1/callbacks/{partner}")));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.header("content-type", "application/json").body(body.to_owned()).send().await.unwrap();
        let status = answer.status().as_u16();
        let body = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap_or_default();
        Answer { status, body, replayed: false }
    }

    /// Asserts the idle state: no violation in the history, no open booking at the partner, no dead job.
    pub async fn assert_at_rest(&self) {
        self.assert_sound().await;
        assert_eq!(self.sim.read_report().open, Vec::<String>::new());
        let dead: u64 = self.app.core.store.queue_stats(&jobs::queues::ALL).await.unwrap().iter().map(|s| s.dead).sum();
        assert_eq!(dead, 0);
    }
}

impl Partnership {
    /// Sends a payment event for ORD-1.
    pub async fn pay(&self, key: &str, event: &str, status: &str) -> Answer {
        let body = json!({ "event_id": event, "payment_status": status });
        self.api.post("/api/v1/orders/ORD-1/payment", key, body).await
    }

    /// Sends a refund action for ORD-1.
    pub async fn refund(&self, key: &str, action: &str) -> Answer {
        self.api.post("/api/v1/orders/ORD-1/refund", key, json!({ "action": action, "note": "by hand" })).await
    }
}

impl Partnership {
    /// Moves time until the partner was polled `times` times. Returns the seconds between the polls.
    pub async fn until_polled(&self, times: u64) -> Vec<f64> {
        let (mut last_ms, mut pauses) = (self.now_ms(), Vec::new());
        while self.polls() < times {
            let (before, next_ms) = (self.polls(), self.next_due_ms().await.expect("something is to come"));
            self.move_clock_to(next_ms).await;
            self.run_due().await;
            if self.polls() > before {
                pauses.push(millis(next_ms - last_ms).as_secs_f64());
                last_ms = next_ms;
            }
        }
        pauses
    }
}

/// Returns the configuration of the partner.
pub fn partner(config: &mut Config) -> &mut PartnerConfig {
    config.partners.get_mut(PARTNER).unwrap()
}

fn serve_by(config: &mut Config, sim: &PartnerSim) {
    config.partners.insert(PARTNER.into(), configured(&sim.url()));
    config.service_types.entry(SERVICE.into()).or_default().partner = Some(PARTNER.into());
}

/// A worker in this process. Dropping it drains the worker.
#[derive(Debug)]
pub struct Working {
    stop: CancellationToken,
}

pub fn work(app: &App) -> Working {
    let stop = CancellationToken::new();
    let queues = process::select_queues(&app.config, &[], None).unwrap();
    tokio::spawn(process::run(app.clone(), queues, stop.clone()));
    Working { stop }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
