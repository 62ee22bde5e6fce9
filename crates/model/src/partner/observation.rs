//! A partner's report about a booking, from a callback or an answer, in one form.

use serde::Deserialize;

use super::answer::{JobStatus, PartnerStatus};
use crate::{field_error::FieldError, input, order::EventReason};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObservationSource {
    Callback,
    /// An answer to our poll.
    Poll,
}

impl ObservationSource {
    /// Returns the history reason for a job id from this source.
    pub fn history_reason(self) -> EventReason {
        match self {
            Self::Callback => EventReason::JobIdViaCallback,
            Self::Poll => EventReason::JobIdViaProactive,
        }
    }
}

/// Progress of the booking as the partner reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BookingPhase {
    /// No news beyond the other fields of the observation.
    Searching,
    /// The partner found no driver, or returned the booking.
    NoDriver,
    DriverAssigned,
    DriverCancelled,
    PickedUp,
    Completed,
    /// The booking is cancelled at the partner.
    Cancelled,
}

/// A partner's report about the booking of attempt `attempt_no`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    pub via: ObservationSource,
    pub attempt_no: i32,
    pub booking_id: Option<String>,
    pub job_id: Option<String>,
    /// The partner's own id of the driver.
    pub driver_id: Option<String>,
    pub phase: BookingPhase,
}

impl Observation {
    pub fn from_answer(attempt_no: i32, status: JobStatus) -> Self {
        Self {
            via: ObservationSource::Poll,
            attempt_no,
            booking_id: Some(status.booking_id),
            job_id: status.job_id,
            driver_id: status.driver_id,
            phase: match status.status {
                PartnerStatus::Searching | PartnerStatus::Unknown => BookingPhase::Searching,
                PartnerStatus::DriverAssigned => BookingPhase::DriverAssigned,
                PartnerStatus::PickedUp => BookingPhase::PickedUp,
                PartnerStatus::Completed => BookingPhase::Completed,
                PartnerStatus::Cancelled => BookingPhase::Cancelled,
                PartnerStatus::NoDriver => BookingPhase::NoDriver,
            },
        }
    }

    pub fn from_callback(attempt_no: i32, body: CallbackBody) -> Self {
        Self {
            via: ObservationSource::Callback,
            attempt_no,
            booking_id: Some(body.booking_id),
            job_id: body.job_id,
            driver_id: body.driver_id,
            phase: body.kind.booking_phase(),
        }
    }
}

/// Body of a callback, as in docs/PARTNER.md. Unknown fields are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[schema(as = Callback)]
pub struct CallbackBody {
    #[schema(min_length = 1, max_length = 128)]
    pub event_id: String,
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    pub kind: CallbackKind,
    #[schema(min_length = 1, max_length = 128)]
    pub booking_id: String,
    /// `{order}:{attempt}`, as sent with the booking.
    pub reference: Option<String>,
    pub job_id: Option<String>,
    pub driver_id: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallbackKind {
    JobIdAssigned,
    DriverAssigned,
    NoDriver,
    DriverCancelled,
    PickedUp,
    Completed,
    BookingCancelled,
    /// A type that this version does not know. The callback is stored and has no effect.
    #[serde(other)]
    Unknown,
}

impl CallbackKind {
    /// Returns whether the order may lose its driver or booking by this callback. It then pauses before the next
    /// attempt.
    pub fn may_pause_search(self) -> bool {
        use BookingPhase::{Cancelled, DriverCancelled, NoDriver};
        matches!(self.booking_phase(), NoDriver | DriverCancelled | Cancelled)
    }

    fn booking_phase(self) -> BookingPhase {
        match self {
            Self::JobIdAssigned | Self::Unknown => BookingPhase::Searching,
            Self::DriverAssigned => BookingPhase::DriverAssigned,
            Self::NoDriver => BookingPhase::NoDriver,
            Self::DriverCancelled => BookingPhase::DriverCancelled,
            Self::PickedUp => BookingPhase::PickedUp,
            Self::Completed => BookingPhase::Completed,
            Self::BookingCancelled => BookingPhase::Cancelled,
        }
    }
}

impl CallbackBody {
    /// Returns whether the event is of a type that this version does not know.
    pub fn is_unknown(&self) -> bool {
        self.kind == CallbackKind::Unknown
    }

    /// Returns the first field that cannot be stored, with its error.
    pub fn find_problem(&self) -> Option<FieldError> {
        let ids = [
            ("event_id", Some(&self.event_id)),
            ("booking_id", Some(&self.booking_id)),
            ("job_id", self.job_id.as_ref()),
            ("driver_id", self.driver_id.as_ref()),
            ("reference", self.reference.as_ref()),
        ];
        ids.into_iter().find_map(|(name, id)| {
            let problem = input::find_foreign_id_problem(id?)?;
            Some(FieldError::new(name, format!("{name} {problem}")))
        })
    }
}
