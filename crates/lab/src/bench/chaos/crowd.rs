//! What all clients share.

use std::time::Duration;

use rand::RngExt;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    claims::Ledger,
    client::{Answer, Client, Request},
    hang_up,
};
use partner_sim::seeded_rng::ChoiceSeed;

/// Divides the durations of orders, drivers and the partner.
pub(super) const SPEED: f64 = 60.0;

#[derive(Debug, Clone)]
pub(super) struct Crowd {
    pub(super) seed: u64,
    pub(super) client: Client,
    pub(super) ledger: Ledger,
    /// Of the producer.
    pub(super) key: String,
    /// The run is over: drivers go home.
    pub(super) stop: CancellationToken,
}

impl Crowd {
    /// What is left to chance about one thing.
    pub(super) fn chance(&self, about: &[&str]) -> impl rand::Rng + use<> {
        ChoiceSeed::new(self.seed, about).rng()
    }

    pub(super) async fn ask(&self, request: Request<'_>) -> Answer {
        self.client.ask(request).await
    }

    /// Sends it and hangs up at a random moment.
    pub(super) async fn ask_and_hang_up(&self, request: Request<'_>) {
        let bearer = format!("Bearer {}", request.key);
        let mut headers = vec![("Authorization", bearer.as_str())];
        headers.extend(request.idempotency_key.map(|key| ("Idempotency-Key", key)));
        self.hang_up(request.what, request.path, &headers, request.body).await;
    }

    pub(super) async fn hang_up(&self, what: &'static str, path: &str, headers: &[(&str, &str)], body: &Value) {
        let pause = hang_up::LONGEST.mul_f64(rand::rng().random());
        hang_up::post(self.client.next_base(), path, headers, body, pause).await;
        *self.ledger.lock().hang_ups.entry(what).or_default() += 1;
    }

    /// Lets time pass, until the run is over.
    pub(super) async fn sleep(&self, time: Duration) {
        let _ = tokio::time::timeout(time, self.stop.cancelled()).await;
    }
}

/// A random time between two, in milliseconds.
pub(super) fn millis(rng: &mut impl rand::Rng, from: u64, to: u64) -> Duration {
    Duration::from_millis(rng.random_range(from..=to))
}
