//! The application under test and those who use it.
//!
//! * `app`: [`TestApp`]: dispatchq on its own Redis and Postgres, with a clock moved by hand.
//! * `drive`: performs due jobs one by one, as a worker would, and shows what ran.
//! * `orders`: makes orders and drivers, answers offers, reads what became of them.
//! * `api`: the HTTP API in this process, and clients with keys.
//! * `receiver`: a receiver of webhooks that can be told to fail; `mail`: a mail server that can.
//! * `receiver`: a webhook receiver that can be told to fail.
//! * `scrape`: what /metrics shows, taken apart; `counting`: what this test counts.
//! * `crowd`: drivers who answer by themselves.
//! * `fleet`: real processes of the binary on servers of their own.

mod api;
mod app;
mod counting;
mod crowd;
mod drive;
mod fleet;
mod mail;
mod orders;
mod receiver;
mod scrape;

use std::time::Duration;

use dispatch::actor::Actor;

pub(crate) use api::{Answer, Api};
pub(crate) use app::{TestApp, lasting_transaction, redis_command};
pub(crate) use counting::Counting;
pub(crate) use crowd::{Crowd, hire};
pub(crate) use drive::{Ran, ids};
pub(crate) use fleet::{Child, Fleet, Printed, run_binary};
pub(crate) use mail::MailServer;
pub(crate) use orders::id;
pub(crate) use receiver::Receiver;
pub(crate) use scrape::{Family, Scrape};

/// An actor as tables name it.
pub(crate) fn by(actor: &str) -> Actor {
    Actor::parse(actor)
}

pub(crate) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Waits for something that others bring about; panics when it does not come within `within`.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, within: Duration, condition: impl Fn() -> F) {
    let reached = async {
        while !condition().await {
            tokio::time::sleep(millis(20)).await;
        }
    };
    tokio::time::timeout(within, reached).await.unwrap_or_else(|_| panic!("not within {within:?}: {what}"));
}
