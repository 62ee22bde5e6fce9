//! The application under test and those who use it.
//!
//! * `app`: [`TestApp`]: dispatchq on its own Redis and Postgres, with a clock moved by hand.
//! * `drive`: performs due jobs one by one, as a worker would, and shows what ran.
//! * `orders`: makes orders and drivers, answers offers, reads what became of them.
//! * `api`: the HTTP API in this process, and clients with keys; `balancer`: a load balancer in front of it.
//! * `providers`: bindings on a simulated provider. `payments`: a payment service that answers what a test says.
//! * `collector`: a collector of traces. `relay`: a relay that keeps the headers of requests.
//! * `receiver`: a receiver of webhooks that can be told to fail; `mail`: a mail server that can.
//! * `oidc`: a real provider of OpenID Connect.
//! * `prometheus`: a Prometheus that scrapes real processes.
//! * `scrape`: what /metrics shows, taken apart; `counting`: what this test counts.
//! * `crowd`: drivers who answer by themselves.
//! * `log_lines`: what this process logs.
//! * `fleet`: real processes of the binary on servers of their own. `route`: how they reach Postgres, straight or through a pooler.

mod api;
mod app;
mod balancer;
mod collector;
mod counting;
mod crowd;
mod drive;
mod fleet;
mod log_lines;
mod mail;
mod oidc;
mod orders;
mod payments;
mod prometheus;
mod providers;
mod receiver;
mod relay;
pub(crate) mod route;
mod scrape;

use std::time::Duration;

use model::actor::Actor;

pub(crate) use api::{Answer, Api, http_client};
pub(crate) use app::{TestApp, lasting_transaction, redis_command, retry_as_shipped};
pub(crate) use collector::{CollectedSpan, Collector};
pub(crate) use counting::Counting;
pub(crate) use crowd::{Crowd, hire};
pub(crate) use drive::{Ran, ids};
pub(crate) use fleet::{Child, Fleet, Printed, run_binary, run_binary_with_input, send_until_answered};
pub(crate) use log_lines::LogLines;
pub(crate) use mail::MailServer;
pub(crate) use oidc::OidcServer;
pub(crate) use orders::id;
pub(crate) use payments::{PAYMENT_SECRET, PaymentSim};
pub(crate) use prometheus::{Prometheus, last_value};
pub(crate) use providers::{OTP_KEY, ProviderStage, binding_id};
pub(crate) use receiver::Receiver;
pub(crate) use relay::Relay;
pub(crate) use scrape::{Family, Scrape};

/// An actor as tables name it.
pub(crate) fn by(actor: &str) -> Actor {
    Actor::parse(actor)
}

/// For so long a test waits for what others bring about: an event ends the wait, on however slow a machine.
pub(crate) const PATIENCE: Duration = secs(180);

/// Whether the tests run in the profile for machines whose processes stand still.
pub(crate) fn is_slow_profile() -> bool {
    std::env::var("NEXTEST_PROFILE").is_ok_and(|profile| profile == "slow")
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Waits for something that others bring about; panics when it does not come within [`PATIENCE`].
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let reached = async {
        while !condition().await {
            tokio::time::sleep(millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, reached).await.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"));
}
