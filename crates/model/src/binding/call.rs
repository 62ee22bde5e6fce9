//! A call to the provider: its action, key and deadline.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{AccountId, ServerId, TrxId};
use jobs::BindingId;

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
pub enum CallAction {
    /// Starts the transaction of a cycle.
    Start,
    /// Asks for the status of the open transaction.
    Status,
    Otp,
    /// Asks for the status of an UNRESOLVED transaction of an earlier cycle. Uses the provider's `status`.
    Settle,
}

impl CallAction {
    pub const ALL: [Self; 4] = [Self::Start, Self::Status, Self::Otp, Self::Settle];

    /// Returns the word in rows, logs and metrics.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the last segment of the provider's path.
    pub fn wire_path(self) -> &'static str {
        match self {
            Self::Start => "start_transaction",
            Self::Status | Self::Settle => "status",
            Self::Otp => "otp",
        }
    }

    /// Returns whether the call changes nothing at the provider.
    pub fn is_read(self) -> bool {
        matches!(self, Self::Status | Self::Settle)
    }
}

/// A claimed call, with everything needed to make it.
#[derive(Debug, Clone, PartialEq)]
pub struct ProviderCall {
    pub binding_id: BindingId,
    pub server_id: ServerId,
    pub account_id: AccountId,
    pub trx_id: TrxId,
    pub cycle: i64,
    pub call_no: i64,
    pub action: CallAction,
    /// The binding's version after the claim.
    pub fence: i64,
    /// Time by which the caller gives up and the provider ends the call.
    pub call_until: DateTime<Utc>,
    /// Idempotency key, the same for every repeat; `None` for reads.
    pub key: Option<String>,
    /// The stored OTP, encrypted.
    pub otp_value: Option<Vec<u8>>,
}
