//! Simulated drivers: their rows and keys in the database, and their answers to offers.
//!
//! Offers arrive by webhook, as at a real driver app, possibly more than once. Each driver waits for a while, then
//! accepts, declines or ignores the offer, as a [`DriverScript`] decides. A driver that wins an order picks up and
//! completes it, and is then free. A 409 or 410 is a normal answer: another driver was faster.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use axum::{Json, Router, extract::State, http::StatusCode, routing::post};
use geo::Point;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle, time::sleep};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

use super::api::{ApiAnswer, ApiClient};
use accounts::api_keys;
use app::App;
use model::messages::OFFER;
use orders::fleet::driver_index;

/// Attempts to rebuild the index of drivers while other processes rebuild it too.
const INDEX_TRIES: usize = 50;
const INDEX_PAUSE: Duration = Duration::from_millis(100);

/// A simulated driver. It waits at its place and never moves.
#[derive(Debug, Clone)]
pub(crate) struct SimulatedDriver {
    pub(crate) id: String,
    /// Bearer key of the driver.
    pub(crate) key: String,
    pub(crate) at: Point,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DriverReaction {
    Accept,
    Decline(&'static str),
    Ignore,
}

/// Reaction of a driver to an offer, and the time until it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DriverChoice {
    pub(crate) reaction: DriverReaction,
    pub(crate) after: Duration,
}

/// Behaviour of all drivers. Durations are real time.
pub(crate) trait DriverScript: std::fmt::Debug + Send + Sync {
    /// Returns the reaction of `driver` to attempt `attempt_no` of `order`.
    fn choose_reaction(&self, driver: &str, order: &str, attempt_no: u64) -> DriverChoice;

    /// Returns the times from acceptance to pickup and from there to the end. `None` if the order does not belong to
    /// this run.
    fn drive_times(&self, order: &str) -> Option<(Duration, Duration)>;
}

/// The webhook receiver, and all running drivers. Dropping it stops them.
#[derive(Debug)]
pub(crate) struct RunningDrivers {
    simulation: Arc<DriverSimulation>,
    receiver: JoinHandle<()>,
}

#[derive(Debug)]
struct DriverSimulation {
    api: ApiClient,
    script: Box<dyn DriverScript>,
    /// Keys by driver.
    keys: HashMap<String, String>,
    ledger: Mutex<AnswerLedger>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// Received offers and given answers.
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

/// A receiver with a bound port, so that the configuration can contain its address before the system runs.
#[derive(Debug)]
pub(crate) struct OfferReceiver {
    listener: TcpListener,
    address: SocketAddr,
}

impl OfferReceiver {
    pub(crate) async fn bind_port() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen for offers on 127.0.0.1")?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/offers", self.address)
    }

    /// Starts the drivers.
    pub(crate) fn start(
        self,
        api: ApiClient,
        script: Box<dyn DriverScript>,
        fleet: &[SimulatedDriver],
    ) -> RunningDrivers {
        let simulation = Arc::new(DriverSimulation {
            api,
            script,
            keys: fleet.iter().map(|driver| (driver.id.clone(), driver.key.clone())).collect(),
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
    pub(crate) fn driver_count(&self) -> usize {
        self.simulation.keys.len()
    }

    /// Returns how often each answer was given so far.
    pub(crate) fn answer_counts(&self) -> BTreeMap<String, u64> {
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
    /// Handles one offer, including the trip if the driver gets the order.
    async fn handle_offer(&self, offer: &WebhookOffer) {
        let Some(key) = self.keys.get(&offer.driver_id) else { return self.count_answer("offer_to_a_stranger") };
        let choice = self.script.choose_reaction(&offer.driver_id, &offer.order_id, offer.attempt_no);
        sleep(choice.after).await;
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
        let Some((approach, trip)) = self.script.drive_times(&offer.order_id) else {
            return self.count_answer("order_of_a_stranger");
        };
        let body = json!({ "driver_id": offer.driver_id });
        sleep(approach).await;
        if self.post_action(key, offer, "pickup", "picked_up", &body).await {
            sleep(trip).await;
            self.post_action(key, offer, "complete", "completed", &body).await;
        }
    }

    /// Sends one request and counts its result. Returns whether it succeeded.
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

    fn count_answer(&self, answer: &str) {
        *self.lock_ledger().answers.entry(answer.to_owned()).or_default() += 1;
    }

    fn lock_ledger(&self) -> parking_lot::MutexGuard<'_, AnswerLedger> {
        self.ledger.lock()
    }
}

/// Label of all simulated drivers.
pub(crate) const SKILL: &str = "van";

/// Adds drivers with these service types and their keys in two statements, and adds them to the index of drivers.
pub(crate) async fn insert_drivers(app: &App, fleet: &[SimulatedDriver], service_types: &[&str]) -> anyhow::Result<()> {
    let db = &app.core.db;
    let ids: Vec<&str> = fleet.iter().map(|driver| driver.id.as_str()).collect();
    let lats: Vec<f64> = fleet.iter().map(|driver| driver.at.y()).collect();
    let lngs: Vec<f64> = fleet.iter().map(|driver| driver.at.x()).collect();
    sqlx::query(
        "-- insert simulated drivers
         INSERT INTO drivers (id, service_types, skills, lat, lng)
         SELECT id, $4::text[], $5::text[], lat, lng FROM unnest($1::text[], $2::float8[], $3::float8[]) AS d (id, lat, lng)",
    )
    .bind(&ids)
    .bind(&lats)
    .bind(&lngs)
    .bind(service_types)
    .bind([SKILL])
    .execute(db)
    .await
    .context("cannot add the simulated drivers")?;
    let key_ids: Vec<Uuid> = fleet.iter().map(|_| Uuid::now_v7()).collect();
    let hashes: Vec<Vec<u8>> = fleet.iter().map(|driver| api_keys::hash_key(&driver.key)).collect();
    sqlx::query(
        "-- insert simulated drivers' keys
         INSERT INTO api_keys (id, name, sha256, role, driver_id)
         SELECT key_id, 'simulated ' || driver_id, sha256, 'driver', driver_id
         FROM unnest($1::uuid[], $2::text[], $3::bytea[]) AS k (key_id, driver_id, sha256)",
    )
    .bind(&key_ids)
    .bind(&ids)
    .bind(&hashes)
    .execute(db)
    .await
    .context("cannot add the simulated drivers' keys")?;
    // The index that exists would lack the drivers for up to a minute, and another process may be rebuilding it without
    // them.
    for _ in 0..INDEX_TRIES {
        driver_index::invalidate_index(&app.orders).await;
        if driver_index::rebuild_if_missing(&app.orders).await.context("cannot place the simulated drivers")? {
            return Ok(());
        }
        sleep(INDEX_PAUSE).await;
    }
    anyhow::bail!("cannot place the simulated drivers: other processes keep building the index of drivers")
}
