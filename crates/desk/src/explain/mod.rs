//! Explains an order: the reason for its state, its next steps, and what a person can do.
//!
//! * [`gather`]: reads Postgres and Redis.
//! * [`words`]: turns the result into a reason and advice. Pure. [`reason`]: the reason as a value.

pub mod gather;
pub mod reason;
pub mod words;

use chrono::{DateTime, Utc};
use model::{
    ids::{LatLng, PartnerName},
    order::{Booking, Offer, Snapshot},
    ranking::DriverRanking,
    view::OrderView,
};
use serde::Serialize;

use self::reason::OrderReason;
use foundation::worker_drains::Unserved;
use orders::query::TimelineEvent;

/// Explanation of an order for an operator on call.
#[derive(Debug, Serialize)]
pub struct OrderExplanation {
    pub order: OrderView,
    /// Reason for the order's state.
    pub why: String,
    /// The reason as a value, for other languages.
    #[serde(skip)]
    pub reason: OrderReason,
    /// Next jobs, earliest first.
    pub next: Vec<NextJob>,
    /// Actions that a person can take, each with its command. Empty: the order proceeds without help, or has ended.
    pub to_do: Vec<OperatorAdvice>,
    pub offers: Vec<Offer>,
    /// Drivers considered in the latest search, with the reasons for their order; `None`: no search yet, or a partner's
    /// order.
    pub ranking: Option<LatestRanking>,
    /// Rankings of earlier attempts, newest first, at most nine.
    #[serde(skip)]
    pub earlier_rankings: Vec<LatestRanking>,
    pub bookings: Vec<Booking>,
    pub timeline: Vec<TimelineEvent>,
    /// Pickup location.
    #[serde(skip)]
    pub pickup: LatLng,
    /// Whether the order has a contact.
    #[serde(skip)]
    pub has_contact: bool,
    /// Postgres' time of this explanation.
    #[serde(skip)]
    pub now: DateTime<Utc>,
}

/// Ranking of the latest search for a driver.
#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
pub struct LatestRanking {
    /// Attempt of the search.
    pub attempt_no: i32,
    pub at: DateTime<Utc>,
    #[sqlx(json)]
    pub candidates: DriverRanking,
}

/// A job that the order must have, and its state.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NextJob {
    pub job: String,
    pub queue: String,
    pub does: &'static str,
    /// Due time from the row.
    pub at: DateTime<Utc>,
    #[serde(flatten)]
    pub state: JobStanding,
}

/// State of a job in Redis.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum JobStanding {
    /// The job is not due yet, or is due and waiting for a worker.
    Waiting {
        due: DateTime<Utc>,
    },
    /// The job waits in line for slots.
    Parked {
        since: DateTime<Utc>,
    },
    Running {
        /// Worker that runs the job, if it is still known.
        worker: Option<String>,
        lease_ends: DateTime<Utc>,
    },
    Dead {
        error: String,
    },
    /// Redis has lost the job; the reconciler enqueues it again.
    Missing,
    /// Redis did not respond.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OperatorAdvice {
    pub text: String,
    pub command: Option<String>,
}

/// Input of [`words`].
#[derive(Debug)]
pub struct OrderSurroundings {
    pub snapshot: Snapshot,
    pub timeline: Vec<TimelineEvent>,
    pub next: Vec<NextJob>,
    /// Queues in `next` that an operator has paused.
    pub paused: Vec<String>,
    /// Queues in `next` whose jobs no worker takes.
    pub unserved: Vec<(String, Unserved)>,
    /// Partners that can be booked for the next attempt, in configured order.
    pub partners: Vec<PartnerName>,
    /// Partners of the order whose breaker is open.
    pub partners_open: Vec<OpenPartner>,
}

/// A partner whose breaker is open.
#[derive(Debug)]
pub struct OpenPartner {
    pub name: PartnerName,
    /// Seconds until the partner is called again.
    pub open_secs: u64,
    /// Latest failure.
    pub why: String,
}
