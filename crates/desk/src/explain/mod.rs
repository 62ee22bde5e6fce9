//! Why an order is as it is, what happens to it next, and what a person can do.
//!
//! * [`gather`]: what Postgres and Redis say of it.
//! * [`words`]: what that means. Pure. [`reason`]: why an order is as it is, as a value.

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
use orders::query::TimelineEvent;

/// Everything a person who is called at night wants to know of an order.
#[derive(Debug, Serialize)]
pub struct OrderExplanation {
    pub order: OrderView,
    /// Why it is as it is.
    pub why: String,
    /// The same as a value, for other languages.
    #[serde(skip)]
    pub reason: OrderReason,
    /// What fires next, the earliest first.
    pub next: Vec<NextJob>,
    /// What a person can do, each with its command. Empty: it goes on by itself, or is over.
    pub to_do: Vec<OperatorAdvice>,
    pub offers: Vec<Offer>,
    /// Who was looked at in the latest search, and why in this order; `None`: none yet, or a partner's order.
    pub ranking: Option<LatestRanking>,
    /// Those of the attempts before it, the latest first; at most nine.
    #[serde(skip)]
    pub earlier_rankings: Vec<LatestRanking>,
    pub bookings: Vec<Booking>,
    pub timeline: Vec<TimelineEvent>,
    /// Where the customer is picked up.
    #[serde(skip)]
    pub pickup: LatLng,
    /// Postgres' time of this explanation.
    #[serde(skip)]
    pub now: DateTime<Utc>,
}

/// The latest search for a driver, for one attempt.
#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
pub struct LatestRanking {
    /// The attempt it was for.
    pub attempt_no: i32,
    pub at: DateTime<Utc>,
    #[sqlx(json)]
    pub candidates: DriverRanking,
}

/// A job the order must have, and how it stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NextJob {
    pub job: String,
    pub queue: String,
    pub does: &'static str,
    /// As the row says.
    pub at: DateTime<Utc>,
    #[serde(flatten)]
    pub state: JobStanding,
}

/// How a job stands in Redis.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum JobStanding {
    /// Not due yet, or due and waiting its turn.
    Waiting {
        due: DateTime<Utc>,
    },
    /// It waits in line for slots.
    Parked {
        since: DateTime<Utc>,
    },
    Running {
        /// The worker that holds it, if it is still known.
        worker: Option<String>,
        lease_ends: DateTime<Utc>,
    },
    Dead {
        error: String,
    },
    /// Redis lost it; the reconciler puts it back.
    Missing,
    /// Redis does not answer.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OperatorAdvice {
    pub text: String,
    pub command: Option<String>,
}

/// What surrounds the order: everything [`words`] go by.
#[derive(Debug)]
pub struct OrderSurroundings {
    pub snapshot: Snapshot,
    pub timeline: Vec<TimelineEvent>,
    pub next: Vec<NextJob>,
    /// Of the queues in `next`: stopped by an operator.
    pub paused: Vec<String>,
    /// Of the queues in `next`: served by no live worker.
    pub unserved: Vec<String>,
    /// Who may be booked for the next attempt, in the order of the list.
    pub partners: Vec<PartnerName>,
    /// Partners of the order that are left alone.
    pub partners_open: Vec<OpenPartner>,
}

/// A partner that is left alone.
#[derive(Debug)]
pub struct OpenPartner {
    pub name: PartnerName,
    /// For so many seconds more.
    pub open_secs: u64,
    /// The last failure.
    pub why: String,
}
