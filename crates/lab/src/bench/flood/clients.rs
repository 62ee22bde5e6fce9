//! Clients with good keys: they create orders and look at them, at a steady rate.

use std::time::{Duration, Instant};

use anyhow::Context;
use reqwest::StatusCode;
use serde_json::json;
use tokio::{task::JoinSet, time::MissedTickBehavior};

use crate::bench::spread::{SamplePercentiles, duration_micros};

/// Requests a second.
pub(super) const RATE: u32 = 100;
/// Longer than any answer of a server that is alive.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// What became of the requests of one phase.
#[derive(Debug, Default)]
pub(super) struct PhaseAnswers {
    /// Answered with success.
    pub(super) good: u32,
    /// Everything else, connections that broke included.
    pub(super) refused: u32,
    pub(super) first_refusal: Option<String>,
    pub(super) times: SamplePercentiles,
}

/// The clients of one installation. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct FloodClients {
    client: reqwest::Client,
    base: String,
    keys: Vec<String>,
}

impl FloodClients {
    pub(super) fn new(base: &str, keys: Vec<String>) -> anyhow::Result<Self> {
        let client =
            dispatch::outbound::client_builder().no_proxy().timeout(REQUEST_TIMEOUT).pool_max_idle_per_host(64).build();
        Ok(Self { client: client.context("cannot make an HTTP client")?, base: base.to_owned(), keys })
    }

    /// Asks for so long, each request at its time whether those before it are answered or not: its time counts from when it
    /// was due. `name` makes the orders of one phase its own.
    pub(super) async fn send_requests(&self, name: &str, lasting: Duration) -> PhaseAnswers {
        let count = RATE * u32::try_from(lasting.as_secs()).unwrap_or(u32::MAX);
        let mut every = tokio::time::interval(Duration::from_secs(1) / RATE);
        every.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut asking = JoinSet::new();
        for n in 0..count {
            let due = every.tick().await.into_std();
            asking.spawn(self.clone().send_request(format!("{name}-{}", n / 2), n, due));
        }
        let mut told = PhaseAnswers::default();
        let mut times = Vec::new();
        for answer in asking.join_all().await {
            match answer {
                Ok(time) => {
                    told.good += 1;
                    times.push(duration_micros(time));
                }
                Err(error) => {
                    told.refused += 1;
                    told.first_refusal.get_or_insert(error);
                }
            }
        }
        told.times = SamplePercentiles::from_samples(times);
        told
    }

    /// Creates an order or, with every other request, looks at one of the first.
    async fn send_request(self, order: String, n: u32, due: Instant) -> Result<Duration, String> {
        // Each producer sees its own orders alone.
        let producer = n as usize / 2 % self.keys.len();
        let key = &self.keys[producer];
        let request = if n.is_multiple_of(2) {
            let pickup = json!({ "latitude": -6.2088, "longitude": 106.8456 });
            let body = json!({ "order_id": order, "service_type": "RIDE", "pickup": pickup });
            self.client.post(format!("{}/api/v1/orders", self.base)).json(&body)
        } else {
            self.client.get(format!("{}/api/v1/orders/FIRST-{producer}", self.base))
        };
        let answer = request.bearer_auth(key).send().await.map_err(|error| error.without_url().to_string())?;
        let status = answer.status();
        let body = answer.text().await.map_err(|error| error.without_url().to_string())?;
        match status {
            StatusCode::OK | StatusCode::CREATED => Ok(due.elapsed()),
            other => Err(format!("{other} {body}")),
        }
    }
}
