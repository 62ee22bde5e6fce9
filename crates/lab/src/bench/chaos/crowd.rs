//! State shared by all clients.

use std::time::Duration;

use rand::RngExt;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    claims::ClaimLedger,
    client::{ChaosAnswer, ChaosClient, ChaosRequest},
    hang_up,
};
use partner_sim::seeded_rng::ChoiceSeed;

#[derive(Debug, Clone)]
pub(in crate::bench) struct ChaosCrowd {
    pub(in crate::bench) seed: u64,
    /// Divides the durations of trips.
    pub(in crate::bench) speed: f64,
    pub(in crate::bench) client: ChaosClient,
    pub(in crate::bench) ledger: ClaimLedger,
    /// Key of the producer.
    pub(in crate::bench) key: String,
    /// Cancelled at the end of the run; drivers then stop.
    pub(in crate::bench) stop: CancellationToken,
}

/// Number of drivers, and other settings of the clients.
#[derive(Debug, Clone, Copy)]
pub(in crate::bench) struct CrowdPlan {
    /// Name of the producer.
    pub(in crate::bench) name: &'static str,
    pub(in crate::bench) seed: u64,
    pub(in crate::bench) speed: f64,
    pub(in crate::bench) drivers: usize,
}

impl ChaosCrowd {
    /// Returns the random generator for one subject.
    pub(super) fn rng_for(&self, about: &[&str]) -> impl rand::Rng + use<> {
        ChoiceSeed::new(self.seed, about).into_rng()
    }

    pub(super) async fn send_request(&self, request: ChaosRequest<'_>) -> ChaosAnswer {
        self.client.send_until_answered(request).await
    }

    /// Sends a request and hangs up at a random moment.
    pub(super) async fn send_and_hang_up(&self, request: ChaosRequest<'_>) {
        let bearer = format!("Bearer {}", request.key);
        let mut headers = vec![("Authorization", bearer.as_str())];
        headers.extend(request.idempotency_key.map(|key| ("Idempotency-Key", key)));
        self.hang_up(request.what, request.path, &headers, request.body).await;
    }

    pub(super) async fn hang_up(&self, what: &'static str, path: &str, headers: &[(&str, &str)], body: &Value) {
        let pause = hang_up::LONGEST.mul_f64(rand::rng().random());
        hang_up::post_and_hang_up(&self.client.next_base(), path, headers, body, pause).await;
        *self.ledger.lock_claims().hang_ups.entry(what).or_default() += 1;
    }

    /// Returns a random duration between two bounds in seconds, scaled by the speed.
    pub(super) fn orders_time(&self, rng: &mut impl rand::Rng, (from, to): (u64, u64)) -> Duration {
        Duration::from_secs(rng.random_range(from..=to)).div_f64(self.speed)
    }

    /// Waits for this time, or until the run ends.
    pub(super) async fn sleep_unless_stopped(&self, time: Duration) {
        let _ = tokio::time::timeout(time, self.stop.cancelled()).await;
    }
}

/// Returns a random duration between two bounds in milliseconds.
pub(super) fn random_millis(rng: &mut impl rand::Rng, from: u64, to: u64) -> Duration {
    Duration::from_millis(rng.random_range(from..=to))
}
