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
    choices::{self, Behaviour, Reaction},
    fleet::SimulatedDriver,
    plan::PlannedOrder,
};
use crate::testbed::api::{Answer, Api};
use dispatch::notifications::messages::OFFER;

/// The webhook receiver, and all drivers at work. Dropping it stops them.
#[derive(Debug)]
pub(super) struct Drivers {
    simulation: Arc<Simulation>,
    receiver: JoinHandle<()>,
}

#[derive(Debug)]
struct Simulation {
    api: Api,
    behaviour: Behaviour,
    speed: f64,
    /// Keys by driver.
    keys: HashMap<String, String>,
    /// Approach and trip by order, in the order's time.
    trips: HashMap<String, (Duration, Duration)>,
    ledger: Mutex<Ledger>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// What was seen and done so far. A std mutex: it is never held across an await.
#[derive(Debug, Default)]
struct Ledger {
    offers_seen: HashSet<String>,
    answers: BTreeMap<String, u64>,
}

#[derive(Debug, Deserialize)]
struct Webhook {
    #[serde(rename = "type")]
    kind: String,
    data: Value,
}

#[derive(Debug, Clone, Deserialize)]
struct Offer {
    offer_id: String,
    order_id: String,
    driver_id: String,
    attempt_no: u64,
}

/// A receiver that has its port, so that a configuration can name it before anybody can be served.
#[derive(Debug)]
pub(super) struct Receiver {
    listener: TcpListener,
    address: SocketAddr,
}

impl Receiver {
    pub(super) async fn bind() -> anyhow::Result<Self> {
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
        api: Api,
        behaviour: Behaviour,
        speed: f64,
        fleet: &[SimulatedDriver],
        orders: &[PlannedOrder],
    ) -> Drivers {
        let simulation = Arc::new(Simulation {
            api,
            behaviour,
            speed,
            keys: fleet.iter().map(|driver| (driver.id.clone(), driver.key.clone())).collect(),
            trips: orders.iter().map(|order| (order.id.clone(), (order.approach, order.trip))).collect(),
            ledger: Mutex::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        let router = Router::new().route("/offers", post(receive)).with_state(simulation.clone());
        let receiver = tokio::spawn(async move {
            if let Err(error) = axum::serve(self.listener, router).await {
                tracing::error!(%error, "The receiver of offers ended.");
            }
        });
        Drivers { simulation, receiver }
    }
}

impl Drivers {
    pub(super) fn count(&self) -> usize {
        self.simulation.keys.len()
    }

    /// How often each answer was given, so far.
    pub(super) fn answers(&self) -> BTreeMap<String, u64> {
        self.simulation.ledger().answers.clone()
    }
}

impl Drop for Drivers {
    fn drop(&mut self) {
        self.simulation.stop.cancel();
        self.receiver.abort();
    }
}

async fn receive(State(simulation): State<Arc<Simulation>>, Json(webhook): Json<Webhook>) -> StatusCode {
    if webhook.kind != OFFER {
        return StatusCode::NO_CONTENT;
    }
    let Ok(offer) = serde_json::from_value::<Offer>(webhook.data) else {
        simulation.count("unreadable_offer");
        return StatusCode::BAD_REQUEST;
    };
    if !simulation.ledger().offers_seen.insert(offer.offer_id.clone()) {
        simulation.count("repeated_offer");
        return StatusCode::OK;
    }
    let (tasks, stop) = (simulation.tasks.clone(), simulation.stop.clone());
    tasks.spawn(async move { stop.run_until_cancelled(simulation.consider(&offer)).await });
    StatusCode::OK
}

impl Simulation {
    /// One driver and one offer, to the end of the trip if it comes to that.
    async fn consider(&self, offer: &Offer) {
        let Some(key) = self.keys.get(&offer.driver_id) else { return self.count("offer_to_a_stranger") };
        let choice = choices::react(&self.behaviour, &offer.driver_id, &offer.order_id, offer.attempt_no);
        self.live(choice.after).await;
        match choice.reaction {
            Reaction::Ignore => self.count("ignored"),
            Reaction::Decline(reason) => {
                let body = json!({ "driver_id": offer.driver_id, "offer_id": offer.offer_id, "reason": reason });
                self.act(key, offer, "decline", "declined", &body).await;
            }
            Reaction::Accept => {
                let body = json!({ "driver_id": offer.driver_id, "offer_id": offer.offer_id });
                if self.act(key, offer, "accept", "accepted", &body).await {
                    self.drive(key, offer).await;
                }
            }
        }
    }

    async fn drive(&self, key: &str, offer: &Offer) {
        let Some(&(approach, trip)) = self.trips.get(&offer.order_id) else { return self.count("order_of_a_stranger") };
        let body = json!({ "driver_id": offer.driver_id });
        self.live(approach).await;
        if self.act(key, offer, "pickup", "picked_up", &body).await {
            self.live(trip).await;
            self.act(key, offer, "complete", "completed", &body).await;
        }
    }

    /// Sends one request and counts its end. Was it done?
    async fn act(&self, key: &str, offer: &Offer, action: &str, done: &str, body: &Value) -> bool {
        match self.api.order_action(key, &offer.order_id, action, body).await {
            Answer::Done => {
                self.count(done);
                true
            }
            Answer::Refused { status, code } => {
                tracing::debug!(order.id = offer.order_id, action, status, code, "A driver's request was refused.");
                self.count(&format!("{action}_refused_{}", code.to_lowercase()));
                false
            }
            Answer::Failed(error) => {
                tracing::warn!(order.id = offer.order_id, action, error, "A driver's request got no answer.");
                self.count(&format!("{action}_failed"));
                false
            }
        }
    }

    /// Lets this much of the drivers' time pass.
    async fn live(&self, time: Duration) {
        tokio::time::sleep(time.div_f64(self.speed)).await;
    }

    fn count(&self, answer: &str) {
        *self.ledger().answers.entry(answer.to_owned()).or_default() += 1;
    }

    fn ledger(&self) -> std::sync::MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
