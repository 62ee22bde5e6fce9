//! Why a binding is as it is, what is due next, who holds its claim and slots, and what a person can do.
//!
//! * [`gather`]: what Postgres and Redis say of it.
//! * [`words`]: what that means. Pure.

pub mod gather;
pub mod words;

use chrono::{DateTime, Utc};
use model::binding::{Binding, CallAction, TrxId};
use serde::Serialize;
use sqlx::FromRow;

use super::list::BindingEventRow;

/// Everything an operator wants to know of a binding.
#[derive(Debug, Serialize)]
pub struct BindingExplanation {
    pub binding: Binding,
    pub why: String,
    /// `None`: nothing comes by itself.
    pub next: Option<NextStep>,
    /// The open call.
    pub claim: Option<OpenClaim>,
    /// Slots that are held for it.
    pub slots: Vec<SlotsOfJob>,
    pub server: ServerSituation,
    /// Calls that are open or about to be, of all servers, and how many may be; `None`: Redis did not say.
    pub all_calls: Option<SlotUse>,
    /// What a person can do, each with its command. Empty: it goes on by itself, or rests.
    pub to_do: Vec<BindingAdvice>,
    /// The latest first.
    pub events: Vec<BindingEventRow>,
    /// Why Redis could not be asked.
    pub redis_error: Option<String>,
}

/// The job that the binding must have.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NextStep {
    pub job: String,
    pub does: &'static str,
    /// As the row says.
    pub at: DateTime<Utc>,
    /// `None`: Redis did not say.
    pub place: Option<JobPlace>,
}

/// Where a job is in Redis.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum JobPlace {
    Waiting {
        due: DateTime<Utc>,
    },
    /// In its server's line for slots.
    Parked {
        since: DateTime<Utc>,
        /// Jobs before it in the line.
        before: u64,
        /// The first of them.
        first_before: Vec<String>,
        /// The job that holds the binding's own slot, if it waits for that.
        behind: Option<String>,
    },
    Running {
        /// `None`: the worker is gone.
        worker: Option<String>,
        lease_ends: DateTime<Utc>,
    },
    Dead {
        error: String,
    },
    /// Redis lost it; the reconciler puts it back.
    Missing,
}

/// The record of the call that is open, as its claim wrote it.
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

/// Slots of one job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SlotsOfJob {
    pub job: String,
    pub until: DateTime<Utc>,
    /// They are kept for a job that no worker has taken yet.
    pub reserved: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SlotUse {
    pub in_use: u64,
    pub limit: u32,
    /// Jobs that wait in line.
    pub waiting: u64,
}

/// The server as it fares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServerSituation {
    pub id: String,
    pub provider: String,
    pub enabled: bool,
    /// This process has a key for the provider; workers need one.
    pub is_configured: bool,
    /// Why the configuration does not allow calls at the server's address.
    pub address_problem: Option<String>,
    pub max_concurrent: Option<i32>,
    /// Calls in a row that failed by its fault.
    pub failures: i32,
    /// Not called before.
    pub paused_until: Option<DateTime<Utc>>,
    /// `None`: Redis did not say.
    pub slots: Option<SlotUse>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BindingAdvice {
    pub text: String,
    pub command: Option<String>,
}
