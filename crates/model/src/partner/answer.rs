//! Answers of a partner, and errors when it does not answer.

use std::time::Duration;

use serde::Deserialize;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Temporary failure: no answer, 5xx, or an unreadable answer. The call may have had an effect.
    #[error("{0}")]
    Transient(String),
    /// 429: the partner requests a pause of this length.
    #[error("the partner requests a pause of {} s (429)", .0.as_secs_f64())]
    TooMany(Duration),
    /// 401, 403: the problem is our account, not this order.
    #[error("the partner refuses our key ({0}); check partners.*.api_key")]
    Unauthorized(u16),
    /// 404: the partner does not know the booking.
    #[error("the partner does not know this booking (404)")]
    NotFound,
    /// 409 to a cancel: the trip is under way or has ended.
    #[error("the partner does not cancel: {0}")]
    UnderWay(String),
    /// Any other 4xx: the partner will never accept this request.
    #[error("the partner refuses: {0}")]
    Refused(String),
}

impl CallError {
    /// All metric labels for the results of calls.
    pub const LABELS: [&str; 7] = ["ok", "transient", "too_many", "unauthorized", "not_found", "under_way", "refused"];

    pub fn as_label(&self) -> &'static str {
        match self {
            Self::Transient(_) => "transient",
            Self::TooMany(_) => "too_many",
            Self::Unauthorized(_) => "unauthorized",
            Self::NotFound => "not_found",
            Self::UnderWay(_) => "under_way",
            Self::Refused(_) => "refused",
        }
    }
}

/// State of a booking as the partner reports it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct JobStatus {
    pub booking_id: String,
    pub job_id: Option<String>,
    pub status: PartnerStatus,
    pub driver_id: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartnerStatus {
    Searching,
    DriverAssigned,
    PickedUp,
    Completed,
    Cancelled,
    NoDriver,
    /// A word that this version does not know; it has no effect.
    #[serde(other)]
    Unknown,
}
