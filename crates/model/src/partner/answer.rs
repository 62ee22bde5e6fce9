//! What a partner answers, and what it means that it does not.

use std::time::Duration;

use serde::Deserialize;

/// Why a call did not do what it was to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It may work the next time: no answer, 5xx, nonsense. Whether it had an effect is unknown.
    #[error("{0}")]
    Transient(String),
    /// 429: the partner wants to be left alone for so long.
    #[error("the partner asks for a pause of {} s (429)", .0.as_secs_f64())]
    TooMany(Duration),
    /// 401, 403: our account, not this order.
    #[error("the partner refuses our key ({0}); check partners.*.api_key")]
    Unauthorized(u16),
    /// 404: the partner does not know the booking.
    #[error("the partner does not know this booking (404)")]
    NotFound,
    /// 409 to a cancel: the trip is under way or over.
    #[error("the partner does not cancel: {0}")]
    UnderWay(String),
    /// Any other 4xx: it will never take this request.
    #[error("the partner refuses: {0}")]
    Refused(String),
}

impl CallError {
    /// All labels that results of calls have in metrics.
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

/// How the partner says a booking stands.
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
    /// A word this version does not know: nothing to go by.
    #[serde(other)]
    Unknown,
}
