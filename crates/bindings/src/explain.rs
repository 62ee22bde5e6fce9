//! Explains a binding: the reason for its state, its next step, the owner of its claim and slots, and the actions that
//! a person can take.
//!
//! * [`gather`]: reads Postgres and Redis.
//! * [`words`]: turns the result into text. Pure.

pub mod gather;
pub mod words;

use chrono::{DateTime, Utc};
use model::binding::{Binding, CallAction, TrxId};
use serde::Serialize;
use sqlx::FromRow;

use super::list::BindingEventRow;

#[derive(Debug, Serialize)]
pub struct BindingExplanation {
    pub binding: Binding,
    pub why: String,
    /// `None`: the binding has no next step without a command.
    pub next: Option<NextStep>,
    /// Claim of the open call.
    pub claim: Option<OpenClaim>,
    /// Slots held for the binding.
    pub slots: Vec<SlotsOfJob>,
    pub server: ServerSituation,
    /// Open and starting calls to all servers, and their limit; `None`: Redis did not respond.
    pub all_calls: Option<SlotUse>,
    /// Actions that a person can take, each with its command. Empty: the binding proceeds without help, or has nothing
    /// to do.
    pub to_do: Vec<BindingAdvice>,
    /// Events, newest first.
    pub events: Vec<BindingEventRow>,
    pub redis_error: Option<String>,
}

/// Job that the binding must have.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NextStep {
    pub job: String,
    pub does: &'static str,
    /// Due time according to the row.
    pub at: DateTime<Utc>,
    /// `None`: Redis did not respond.
    pub place: Option<JobPlace>,
}

/// State of a job in Redis.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum JobPlace {
    Waiting {
        due: DateTime<Utc>,
    },
    /// The job waits in its server's line for slots.
    Parked {
        since: DateTime<Utc>,
        /// Number of jobs ahead of it in the line.
        before: u64,
        /// First jobs of the line.
        first_before: Vec<String>,
        /// Job that holds the binding's slot, if this job waits for that slot.
        behind: Option<String>,
    },
    Running {
        /// `None`: the worker no longer exists.
        worker: Option<String>,
        lease_ends: DateTime<Utc>,
    },
    Dead {
        error: String,
    },
    /// Redis has lost the job; the reconciler enqueues it again.
    Missing,
}

/// Claim record of the open call.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct OpenClaim {
    #[sqlx(skip)]
    pub trx_id: Option<TrxId>,
    pub call_no: i64,
    pub action: CallAction,
    pub owner: Option<String>,
    pub claimed_at: DateTime<Utc>,
    pub call_until: DateTime<Utc>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SlotsOfJob {
    pub job: String,
    pub until: DateTime<Utc>,
    /// Whether the slots are reserved for a job that no worker has taken yet.
    pub reserved: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SlotUse {
    pub in_use: u64,
    pub limit: u32,
    /// Jobs that wait in the line.
    pub waiting: u64,
}

/// Current state of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServerSituation {
    pub id: String,
    pub provider: String,
    pub enabled: bool,
    /// Whether this process has a key for the provider. Only workers need one.
    pub is_configured: bool,
    /// Reason why the configuration does not allow calls to the server's address.
    pub address_problem: Option<String>,
    pub max_concurrent: Option<i32>,
    /// Number of consecutive failed calls that were the server's fault.
    pub failures: i32,
    /// End of a pause during which the server is not called.
    pub paused_until: Option<DateTime<Utc>>,
    /// `None`: Redis did not respond.
    pub slots: Option<SlotUse>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BindingAdvice {
    pub text: String,
    pub command: Option<String>,
}
