//! Bookings at partners, one per attempt.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::PartnerName;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, sqlx::Type, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum BookingState {
    /// Stored, and not yet sent to the partner.
    Intent,
    /// Sent without an answer. The request is repeated under the same key.
    Unknown,
    /// The partner accepted the booking.
    Booked,
    /// Must be cancelled. The partner has not confirmed the cancel yet.
    CancelWanted,
    Cancelled,
    /// Closed: the partner refused the booking, or no longer knows it.
    Refused,
    /// Closed: the trip was completed.
    Completed,
}

impl BookingState {
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns whether the booking is needed: it is accepted, or a request for it is open.
    pub fn is_live(self) -> bool {
        matches!(self, Self::Intent | Self::Unknown | Self::Booked)
    }

    /// Returns whether the partner's answer to the booking request is pending.
    pub fn is_unanswered(self) -> bool {
        matches!(self, Self::Intent | Self::Unknown)
    }
}

/// A row of `bookings`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Booking {
    pub attempt_no: i32,
    pub partner: PartnerName,
    pub state: BookingState,
    /// The partner's id; `None` until an answer or a callback contains it.
    pub booking_id: Option<String>,
    pub job_id: Option<String>,
    /// Failed requests since the booking entered its state.
    pub tries: i32,
    /// Time of the next request to book, to cancel, or to send changed contents.
    pub next_try_at: Option<DateTime<Utc>>,
    pub last_error: Option<String>,
    pub created_at: DateTime<Utc>,
    pub booked_at: Option<DateTime<Utc>>,
    /// Time when this booking moved the order to ASSIGNED; `None` if its job id did not arrive while the order waited
    /// for it.
    pub assigned_at: Option<DateTime<Utc>>,
    pub closed_at: Option<DateTime<Utc>>,
    /// Places of the booking request, if they were changed before the partner answered it. A repeated request must be
    /// equal to the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub places: Option<Value>,
}

impl Booking {
    pub fn new_intent(attempt_no: i32, partner: PartnerName, at: DateTime<Utc>) -> Self {
        Self {
            attempt_no,
            partner,
            state: BookingState::Intent,
            booking_id: None,
            job_id: None,
            tries: 0,
            next_try_at: Some(at),
            last_error: None,
            created_at: at,
            booked_at: None,
            assigned_at: None,
            closed_at: None,
            places: None,
        }
    }

    pub fn set_booked(&mut self, at: DateTime<Utc>) {
        self.state = BookingState::Booked;
        (self.tries, self.next_try_at, self.last_error) = (0, None, None);
        self.booked_at = Some(at);
    }

    /// Marks the booking to be cancelled. The partner is asked until it confirms.
    pub fn want_cancel(&mut self, at: DateTime<Utc>) {
        self.state = BookingState::CancelWanted;
        (self.tries, self.next_try_at, self.last_error) = (0, Some(at), None);
        self.closed_at = None;
    }

    /// Closes the booking. No further request is sent.
    pub fn close_as(&mut self, state: BookingState, at: DateTime<Utc>) {
        debug_assert!(matches!(state, BookingState::Cancelled | BookingState::Refused | BookingState::Completed));
        self.state = state;
        self.next_try_at = None;
        self.closed_at = Some(at);
    }

    /// Records a failed request. The next one is due at `next`.
    pub fn record_failure(&mut self, error: String, next: DateTime<Utc>) {
        if self.state == BookingState::Intent {
            self.state = BookingState::Unknown;
        }
        self.tries = self.tries.saturating_add(1);
        self.next_try_at = Some(next);
        self.last_error = Some(error);
    }
}
