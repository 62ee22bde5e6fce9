//! The application under test and those who use it, for the tests of every capability.
//!
//! This crate is a dev-dependency alone: no crate of the product is built with it.
//!
//! * `app`: [`TestApp`]: dispatchq on its own Redis and Postgres, with a clock moved by hand. `behind`: with a way to Postgres that can
//!   be broken. `rows`: rows for tests of plans.
//! * `drive`: performs due jobs one by one, as a worker would, and shows what ran. `dead_letters`: jobs that die at once.
//! * `orders`: makes orders and drivers, answers offers, reads what became of them. `admission`: areas that are full.
//! * `api`: the HTTP API in this process, and clients with keys; `balancer`: a load balancer in front of it.
//! * `providers`: bindings on a simulated provider. `partnership`: a simulated partner. `payments`: a payment service that answers what
//!   a test says.
//! * `receiver`: a receiver of webhooks that can be told to fail; `mail`: a mail server that can. `relay`: a relay that keeps the headers
//!   of requests.
//! * `oidc`: a real provider of OpenID Connect.
//! * `scrape`: what /metrics shows, taken apart; `counting`: what this test counts. `costs`: how many statements orders cost.
//! * `crowd`: drivers who answer by themselves.
//! * `log_lines`: what this process logs.
//! * `route`: how a process reaches Postgres, straight or through a pooler.
//!
//! Design: docs/design/tests.md.

// Futures of requests are nested deeper than the default allows.
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
    log_lines::LogLines,
    mail::{Mail, MailServer},
    oidc::OidcServer,
    orders::id,
    payments::{PAYMENT_SECRET, PaymentSim},
    providers::{OTP_KEY, ProviderStage, binding_id},
    receiver::{Received, Receiver},
    relay::{Relay, RelayedRequest},
    scrape::{Family, Scrape},
};

/// The zones that the repository ships.
pub const JAKARTA: &str = include_str!("../../../deploy/areas/jakarta.geojson");

/// Parses an actor as tables name it.
pub fn by(actor: &str) -> Actor {
    Actor::parse(actor)
}

/// Maximum time a test waits for an event. Long enough for a slow machine.
pub const PATIENCE: Duration = secs(180);

/// Whether the tests run in the profile for machines whose processes stand still.
pub fn is_slow_profile() -> bool {
    std::env::var("NEXTEST_PROFILE").is_ok_and(|profile| profile == "slow")
}

pub const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Returns the folder of the workspace, which documents, migrations and deploy are in.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Waits for something that others bring about; panics when it does not come within [`PATIENCE`].
pub async fn eventually<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let reached = async {
        while !condition().await {
            tokio::time::sleep(millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, reached).await.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"));
}
