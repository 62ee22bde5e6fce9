//! Answers that clients got, and results of their requests.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::{Mutex, MutexGuard};
use reqwest::StatusCode;
use serde::Serialize;
use uuid::Uuid;

/// All answers that the verification checks. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(in crate::bench) struct ClaimLedger(Arc<Mutex<ClientClaims>>);

/// Answers that promise a client that something was done.
#[derive(Debug, Clone, Default)]
pub(in crate::bench) struct ClientClaims {
    /// Answers 201 on create: key of the request, and id of the created order.
    pub(in crate::bench) created: Vec<(String, String)>,
    /// Answers 200 on accept: order, offer and driver.
    pub(super) accepted: Vec<(String, Uuid, String)>,
    /// Answers 200 on these actions of drivers: order and driver.
    pub(super) picked_up: Vec<(String, String)>,
    pub(super) completed: Vec<(String, String)>,
    pub(super) given_back: Vec<(String, String)>,
    /// Answers 200 on cancel.
    pub(super) cancelled: Vec<String>,
    /// Answers 200 on a payment event with PAID.
    pub(super) paid: Vec<String>,
    /// Answers 200 on a callback: its event id.
    pub(super) called_back: Vec<String>,
    /// Results by request kind.
    pub(in crate::bench) requests: BTreeMap<&'static str, RequestTally>,
    /// Refusals by request kind and error code.
    pub(in crate::bench) refusals: BTreeMap<String, u64>,
    /// Requests whose client hung up, by request kind.
    pub(in crate::bench) hang_ups: BTreeMap<&'static str, u64>,
    /// Answers 5xx other than 503, by request kind and status. A fault may excuse them.
    pub(in crate::bench) failures: BTreeMap<String, u64>,
    /// Answers that no fault excuses.
    pub(super) wrong: Vec<String>,
}

/// Results of requests of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(in crate::bench) struct RequestTally {
    pub(super) done: u64,
    pub(super) refused: u64,
    /// Requests sent again because there was no answer or a temporary refusal.
    pub(super) retries: u64,
    /// Requests given up without an answer.
    pub(super) unanswered: u64,
}

impl ClaimLedger {
    /// Records an answer with a server error. 503 is excluded, because it asks the client to retry.
    pub(super) fn record_failure(&self, what: &str, status: StatusCode) {
        if status.is_server_error() && status != StatusCode::SERVICE_UNAVAILABLE {
            *self.lock_claims().failures.entry(format!("{what} {}", status.as_u16())).or_default() += 1;
        }
    }

    pub(in crate::bench) fn lock_claims(&self) -> MutexGuard<'_, ClientClaims> {
        self.0.lock()
    }
}
