//! The words of a binding's row. `stop_reason` texts are those of the requirement document.

use serde::{Deserialize, Serialize};

/// What people want of a binding.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    sqlx::Type,
    strum::IntoStaticStr,
    strum::Display,
)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[sqlx(type_name = "text", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BindingState {
    /// No cycle begins. Left by `start` alone.
    Stopped,
    /// One cycle follows another.
    Running,
    /// No cycle begins until `resume`; the open one goes on.
    Paused,
    /// A call was open at `stop`. Becomes STOPPED with its answer, or once its time has passed.
    Stopping,
}

impl BindingState {
    pub const ALL: [Self; 4] = [Self::Stopped, Self::Running, Self::Paused, Self::Stopping];

    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// How far the cycle is.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    sqlx::Type,
    strum::IntoStaticStr,
    strum::Display,
)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[sqlx(type_name = "text", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BindingPhase {
    /// No transaction is open; the next cycle is due at `next_at`.
    Idle,
    /// A call was claimed and its answer is not written.
    Calling,
    /// A transaction is open; the provider is asked about it at `next_at`.
    Processing,
    /// The provider wants an OTP.
    WaitingOtp,
}

impl BindingPhase {
    pub const ALL: [Self; 4] = [Self::Idle, Self::Calling, Self::Processing, Self::WaitingOtp];

    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Why a binding is STOPPED or STOPPING.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    sqlx::Type,
    strum::IntoStaticStr,
    strum::Display,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum StopReason {
    /// A person or a program stopped it.
    ManualStop,
    /// The provider did not start for want of money.
    InsufficientBalanceBeforeStart,
    /// No OTP came in time, and `on_otp_timeout` is "stop".
    OtpTimeout,
    /// Its server was switched off.
    ServerDisabled,
    /// The configuration does not allow calls at the address of its server.
    ServerNotAllowed,
    /// `max_failures` transactions in a row failed.
    TooManyFailures,
    /// A transaction stayed open for too long, and `on_processing_timeout` is "stop".
    ProcessingTimeout,
}

impl StopReason {
    pub const ALL: [Self; 7] = [
        Self::ManualStop,
        Self::InsufficientBalanceBeforeStart,
        Self::OtpTimeout,
        Self::ServerDisabled,
        Self::ServerNotAllowed,
        Self::TooManyFailures,
        Self::ProcessingTimeout,
    ];

    /// The word in rows, answers and metrics.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_says_the_same_words() {
        let json = |value: serde_json::Value| value.as_str().map(str::to_owned);
        for state in BindingState::ALL {
            assert_eq!(json(serde_json::to_value(state).unwrap()).as_deref(), Some(state.as_str()));
        }
        for phase in BindingPhase::ALL {
            assert_eq!(json(serde_json::to_value(phase).unwrap()).as_deref(), Some(phase.as_str()));
        }
        for reason in StopReason::ALL {
            assert_eq!(json(serde_json::to_value(reason).unwrap()).as_deref(), Some(reason.as_str()));
        }
    }
}
