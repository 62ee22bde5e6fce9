//! How simulated drivers answer offers.
//!
//! Offers come by webhook, as to a real driver app, possibly more than once. Each driver thinks for a while, then
//! accepts, declines or lets the offer lapse; who wins an order picks up and completes it, which frees the driver. A 409
//! or 410 is an ordinary answer: another driver was quicker.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context;
use axum::{Json, Router, extract::State, http::StatusCode, routing::post};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    choices::{self, DriverBehaviour, DriverReaction},
    fleet::SimulatedDriver,
    plan::PlannedOrder,
};
use crate::testbed::api::{ApiAnswer, ApiClient};
use dispatch::notifications::messages::OFFER;

/// The webhook receiver, and all drivers at work. Dropping it stops them.
#[derive(Debug)]
pub(super) struct RunningDrivers {
    simulation: Arc<DriverSimulation>,
    receiver: JoinHandle<()>,
}

#[derive(Debug)]
struct DriverSimulation {
    api: ApiClient,
    behaviour: DriverBehaviour,
    speed: f64,
    /// Keys by driver.
    keys: HashMap<String, String>,
    /// Approach and trip by order, in the order's time.
    trips: HashMap<String, (Duration, Duration)>,
    ledger: Mutex<AnswerLedger>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// What was seen and done so far. A std mutex: it is never held across an await.
#[derive(Debug, Default)]
struct AnswerLedger {
    offers_seen: HashSet<String>,
    answers: BTreeMap<String, u64>,
}

#[derive(Debug, Deserialize)]
struct OfferWebhook {
    #[serde(rename = "type")]
    kind: String,
    data: Value,
}

#[derive(Debug, Clone, Deserialize)]
struct WebhookOffer {
    offer_id: String,
    order_id: String,
    driver_id: String,
    attempt_no: u64,
}

/// A receiver that has its port, so that a configuration can name it before anybody can be served.
#[derive(Debug)]
pub(super) struct OfferReceiver {
    listener: TcpListener,
    address: SocketAddr,
}

impl OfferReceiver {
    pub(super) async fn bind_port() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen for offers on 127.0.0.1")?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/offers", self.address)
    }

    /// Lets the drivers work.
    pub(super) fn start(
        self,
        api: ApiClient,
        behaviour: DriverBehaviour,
        speed: f64,
        fleet: &[SimulatedDriver],
        orders: &[PlannedOrder],
    ) -> RunningDrivers {
        let simulation = Arc::new(DriverSimulation {
            api,
            behaviour,
            speed,
            keys: fleet.iter().map(|driver| (driver.id.clone(), driver.key.clone())).collect(),
            trips: orders.iter().map(|order| (order.id.clone(), (order.approach, order.trip))).collect(),
            ledger: Mutex::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        let router = Router::new().route("/offers", post(receive_offer)).with_state(simulation.clone());
        let receiver = tokio::spawn(async move {
            if let Err(error) = axum::serve(self.listener, router).await {
                tracing::error!(%error, "The receiver of offers ended.");
            }
        });
        RunningDrivers { simulation, receiver }
    }
}

impl RunningDrivers {
    pub(super) fn driver_count(&self) -> usize {
        self.simulation.keys.len()
    }

    /// How often each answer was given, so far.
    pub(super) fn answer_counts(&self) -> BTreeMap<String, u64> {
        self.simulation.lock_ledger().answers.clone()
    }
}

impl Drop for RunningDrivers {
    fn drop(&mut self) {
        self.simulation.stop.cancel();
        self.receiver.abort();
    }
}

async fn receive_offer(
    State(simulation): State<Arc<DriverSimulation>>,
    Json(webhook): Json<OfferWebhook>,
) -> StatusCode {
    if webhook.kind != OFFER {
        return StatusCode::NO_CONTENT;
    }
    let Ok(offer) = serde_json::from_value::<WebhookOffer>(webhook.data) else {
        simulation.count_answer("unreadable_offer");
        return StatusCode::BAD_REQUEST;
    };
    if !simulation.lock_ledger().offers_seen.insert(offer.offer_id.clone()) {
        simulation.count_answer("repeated_offer");
        return StatusCode::OK;
    }
    let (tasks, stop) = (simulation.tasks.clone(), simulation.stop.clone());
    tasks.spawn(async move { stop.run_until_cancelled(simulation.handle_offer(&offer)).await });
    StatusCode::OK
}

impl DriverSimulation {
    /// One driver and one offer, to the end of the trip if it comes to that.
    async fn handle_offer(&self, offer: &WebhookOffer) {
        let Some(key) = self.keys.get(&offer.driver_id) else { return self.count_answer("offer_to_a_stranger") };
        let choice = choices::choose_reaction(&self.behaviour, &offer.driver_id, &offer.order_id, offer.attempt_no);
        self.sleep_scaled(choice.after).await;
        match choice.reaction {
            DriverReaction::Ignore => self.count_answer("ignored"),
            DriverReaction::Decline(reason) => {
                let body = json!({ "driver_id": offer.driver_id, "offer_id": offer.offer_id, "reason": reason });
                self.post_action(key, offer, "decline", "declined", &body).await;
            }
            DriverReaction::Accept => {
                let body = json!({ "driver_id": offer.driver_id, "offer_id": offer.offer_id });
                if self.post_action(key, offer, "accept", "accepted", &body).await {
                    self.drive_trip(key, offer).await;
                }
            }
        }
    }

    async fn drive_trip(&self, key: &str, offer: &WebhookOffer) {
        let Some(&(approach, trip)) = self.trips.get(&offer.order_id) else {
            return self.count_answer("order_of_a_stranger");
        };
        let body = json!({ "driver_id": offer.driver_id });
        self.sleep_scaled(approach).await;
        if self.post_action(key, offer, "pickup", "picked_up", &body).await {
            self.sleep_scaled(trip).await;
            self.post_action(key, offer, "complete", "completed", &body).await;
        }
    }

    /// Sends one request and counts its end. Was it done?
    async fn post_action(&self, key: &str, offer: &WebhookOffer, action: &str, done: &str, body: &Value) -> bool {
        match self.api.order_action(key, &offer.order_id, action, body).await {
            ApiAnswer::Done => {
                self.count_answer(done);
                true
            }
            ApiAnswer::Refused { status, code } => {
                tracing::debug!(order.id = offer.order_id, action, status, code, "A driver's request was refused.");
                self.count_answer(&format!("{action}_refused_{}", code.to_lowercase()));
                false
            }
            ApiAnswer::Failed(error) => {
                tracing::warn!(order.id = offer.order_id, action, error, "A driver's request got no answer.");
                self.count_answer(&format!("{action}_failed"));
                false
            }
        }
    }

    /// Lets this much of the drivers' time pass.
    async fn sleep_scaled(&self, time: Duration) {
        tokio::time::sleep(time.div_f64(self.speed)).await;
    }

    fn count_answer(&self, answer: &str) {
        *self.lock_ledger().answers.entry(answer.to_owned()).or_default() += 1;
    }

    fn lock_ledger(&self) -> std::sync::MutexGuard<'_, AnswerLedger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
