//! What we asked of a partner: one booking for each attempt.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::ids::PartnerName;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, sqlx::Type, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum BookingState {
    /// Written down; the partner is about to be asked.
    Intent,
    /// Asked, and the answer did not come: asked again under the same key.
    Unknown,
    /// The partner has it.
    Booked,
    /// No longer wanted; the partner has yet to confirm.
    CancelWanted,
    /// Closed: the partner confirmed the cancel.
    Cancelled,
    /// Closed: the partner will not have it, or knows nothing of it any more.
    Refused,
    /// Closed: carried out.
    Completed,
}

impl BookingState {
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Wanted: it stands at the partner, or is about to.
    pub fn is_live(self) -> bool {
        matches!(self, Self::Intent | Self::Unknown | Self::Booked)
    }

    /// The partner's answer to our request is awaited.
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
    /// The partner's id; `None` until it has answered, or called back.
    pub booking_id: Option<String>,
    pub job_id: Option<String>,
    /// Failed requests since it is in this state.
    pub tries: i32,
    /// When the partner is to be asked (again) to book or to cancel.
    pub next_try_at: Option<DateTime<Utc>>,
    pub last_error: Option<String>,
    pub created_at: DateTime<Utc>,
    pub booked_at: Option<DateTime<Utc>>,
    /// When the order became ASSIGNED by this booking; `None` if its job id did not come while the order waited for it.
    pub assigned_at: Option<DateTime<Utc>>,
    pub closed_at: Option<DateTime<Utc>>,
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
        }
    }

    pub fn set_booked(&mut self, at: DateTime<Utc>) {
        self.state = BookingState::Booked;
        (self.tries, self.next_try_at, self.last_error) = (0, None, None);
        self.booked_at = Some(at);
    }

    /// From now on the partner is asked to cancel, until it confirms.
    pub fn want_cancel(&mut self, at: DateTime<Utc>) {
        self.state = BookingState::CancelWanted;
        (self.tries, self.next_try_at, self.last_error) = (0, Some(at), None);
        self.closed_at = None;
    }

    /// Nothing more is asked of the partner.
    pub fn close_as(&mut self, state: BookingState, at: DateTime<Utc>) {
        debug_assert!(matches!(state, BookingState::Cancelled | BookingState::Refused | BookingState::Completed));
        self.state = state;
        self.next_try_at = None;
        self.closed_at = Some(at);
    }

    /// The request did not get through; the next is due at `next`.
    pub fn record_failure(&mut self, error: String, next: DateTime<Utc>) {
        if self.state == BookingState::Intent {
            self.state = BookingState::Unknown;
        }
        self.tries = self.tries.saturating_add(1);
        self.next_try_at = Some(next);
        self.last_error = Some(error);
    }
}
