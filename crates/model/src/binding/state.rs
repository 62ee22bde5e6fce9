//! Enums of a binding row. The texts of `stop_reason` come from the requirement document.

use serde::{Deserialize, Serialize};

/// Requested state of a binding.
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
    /// No cycle starts. Only `start` leaves this state.
    Stopped,
    /// Cycles run one after another.
    Running,
    /// No cycle starts until `resume`. The open one continues.
    Paused,
    /// A call was open at `stop`. Becomes STOPPED with its answer or at its deadline.
    Stopping,
}

impl BindingState {
    pub const ALL: [Self; 4] = [Self::Stopped, Self::Running, Self::Paused, Self::Stopping];

    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Phase of the current cycle.
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
    /// No transaction is open. The next cycle is due at `next_at`.
    Idle,
    /// A call was claimed and its answer is not written yet.
    Calling,
    /// A transaction is open. The provider is asked for its status at `next_at`.
    Processing,
    WaitingOtp,
}

impl BindingPhase {
    pub const ALL: [Self; 4] = [Self::Idle, Self::Calling, Self::Processing, Self::WaitingOtp];

    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Reason why a binding is STOPPED or STOPPING.
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
    /// The provider started nothing because the balance is too low.
    InsufficientBalanceBeforeStart,
    /// No OTP was submitted in time, and `on_otp_timeout` is "stop".
    OtpTimeout,
    ServerDisabled,
    /// The configuration does not allow calls to the address of its server.
    ServerNotAllowed,
    /// `max_failures` consecutive transactions failed.
    TooManyFailures,
    /// A transaction stayed open too long, and `on_processing_timeout` is "stop".
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

    /// Returns the word in rows, answers and metrics.
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
