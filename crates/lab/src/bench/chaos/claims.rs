//! What clients were told, and how requests fared.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::{Mutex, MutexGuard};
use reqwest::StatusCode;
use serde::Serialize;
use uuid::Uuid;

/// Everything that clients hold the system to. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(in crate::bench) struct ClaimLedger(Arc<Mutex<ClientClaims>>);

/// Answers that promise something. A std mutex: it is never held across an await.
#[derive(Debug, Clone, Default)]
pub(in crate::bench) struct ClientClaims {
    /// 201: the order exists. Key of the request and the order it named.
    pub(in crate::bench) created: Vec<(String, String)>,
    /// 200 on accept: this driver had that order by this offer.
    pub(super) accepted: Vec<(String, Uuid, String)>,
    /// 200 on these actions of drivers: order and driver.
    pub(super) picked_up: Vec<(String, String)>,
    pub(super) completed: Vec<(String, String)>,
    pub(super) given_back: Vec<(String, String)>,
    /// 200 on cancel.
    pub(super) cancelled: Vec<String>,
    /// 200 on a payment event that says PAID.
    pub(super) paid: Vec<String>,
    /// 200 on a callback: its event id.
    pub(super) called_back: Vec<String>,
    /// By what was asked.
    pub(in crate::bench) requests: BTreeMap<&'static str, RequestTally>,
    /// Refusals by what was asked and the error code.
    pub(in crate::bench) refusals: BTreeMap<String, u64>,
    /// Requests whose client hung up, by what was asked.
    pub(in crate::bench) hang_ups: BTreeMap<&'static str, u64>,
    /// Answers 5xx but 503, by what was asked and the status: a fault may excuse them.
    pub(in crate::bench) failures: BTreeMap<String, u64>,
    /// Answers that no fault excuses.
    pub(super) wrong: Vec<String>,
}

/// How requests of one kind ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(in crate::bench) struct RequestTally {
    pub(super) done: u64,
    pub(super) refused: u64,
    /// Sent again, for there was no answer or "not now".
    pub(super) retries: u64,
    /// Given up.
    pub(super) unanswered: u64,
}

impl ClaimLedger {
    /// Records an answer that says that the server failed; 503 says to come back.
    pub(super) fn record_failure(&self, what: &str, status: StatusCode) {
        if status.is_server_error() && status != StatusCode::SERVICE_UNAVAILABLE {
            *self.lock_claims().failures.entry(format!("{what} {}", status.as_u16())).or_default() += 1;
        }
    }

    pub(in crate::bench) fn lock_claims(&self) -> MutexGuard<'_, ClientClaims> {
        self.0.lock()
    }
}
