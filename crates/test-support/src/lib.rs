//! The application under test and its clients, for the tests of all crates.
//!
//! This crate is only a dev-dependency; the product is built without it.
//!
//! * `app`: [`TestApp`], dispatchq on its own Redis and Postgres, with a clock that the test moves. `behind`: the
//!   application with a breakable connection to Postgres. `rows`: rows for tests of query plans.
//! * `drive`: runs due jobs one by one, as a worker does. `dead_letters`: jobs that die at once. `heartbeats`:
//!   heartbeats of workers that do not run.
//! * `orders`: creates orders and drivers, answers offers, and reads the results. `admission`: areas that are full.
//! * `api`: the HTTP API in this process, and clients with API keys. `balancer`: a load balancer in front of it.
//! * `providers`: bindings on a simulated provider. `partnership`: a simulated partner. `payments`: a payment service
//!   whose answers the test sets.
//! * `receiver`: a receiver of webhooks that can fail. `mail`: a mail server that can fail. `relay`: a relay that keeps
//!   the headers of requests.
//! * `oidc`: a real OpenID Connect provider.
//! * `scrape`: a parser for /metrics. `counting`: metrics of a single test. `costs`: statements that orders cost.
//! * `crowd`: drivers that answer without the test.
//! * `log_lines`: log lines of this process.
//! * `route`: the connection of a process to Postgres, direct or through a pooler.
//!
//! Design: docs/design/tests.md.

// Nested request futures exceed the default limit.
#![recursion_limit = "256"]

pub mod admission;
mod api;
mod app;
mod balancer;
mod behind;
pub mod costs;
mod counting;
mod crowd;
pub mod dead_letters;
mod drive;
mod heartbeats;
mod log_lines;
mod mail;
mod oidc;
mod orders;
pub mod partnership;
mod payments;
mod providers;
mod receiver;
mod relay;
pub mod route;
pub mod rows;
mod scrape;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use model::actor::Actor;

pub use self::{
    api::{Answer, Api, create_key, http_client, ride, ride_with_id},
    app::{TestApp, lasting_transaction, migrated_postgres, redis_command, retry_as_shipped},
    behind::{app_behind, config_behind},
    counting::Counting,
    crowd::{Crowd, hire},
    drive::{Ran, ids},
    heartbeats::worker_info,
    log_lines::LogLines,
    mail::{Mail, MailServer},
    oidc::OidcServer,
    orders::{id, update_for_offer, update_order},
    payments::{PAYMENT_SECRET, PaymentSim},
    providers::{OTP_KEY, ProviderStage, binding_id},
    receiver::{Received, Receiver},
    relay::{Relay, RelayedRequest},
    scrape::{Family, Scrape},
};

/// The zones that the repository ships.
pub const JAKARTA: &str = include_str!("../../../deploy/areas/jakarta.geojson");

/// Parses an actor in the form that tables use.
pub fn by(actor: &str) -> Actor {
    Actor::parse(actor)
}

/// Maximum time that a test waits for an event, including on a slow machine.
pub const PATIENCE: Duration = secs(180);

/// Returns whether the tests run in the profile for machines whose processes stall.
pub fn is_slow_profile() -> bool {
    std::env::var("NEXTEST_PROFILE").is_ok_and(|profile| profile == "slow")
}

pub const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Returns the root folder of the workspace, which contains docs, migrations and deploy.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Waits until the condition is true. Panics when it stays false for [`PATIENCE`].
pub async fn eventually<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let reached = async {
        while !condition().await {
            tokio::time::sleep(millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, reached).await.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"));
}
