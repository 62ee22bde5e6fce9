//! A call of the provider: what it is to do, under which key, until when.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{AccountId, ServerId, TrxId};
use jobs::BindingId;

/// What a call is to do.
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
    /// Begins the transaction of a cycle.
    Start,
    /// Asks how the open transaction stands.
    Status,
    /// Hands in an OTP.
    Otp,
    /// Asks how an UNRESOLVED transaction of an earlier cycle stands: the provider's `status`.
    Settle,
}

impl CallAction {
    pub const ALL: [Self; 4] = [Self::Start, Self::Status, Self::Otp, Self::Settle];

    /// The word in rows, logs and metrics.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The last part of the provider's path.
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

/// A claimed call: all that the caller needs to make it.
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
    /// The caller gives up, and the provider ends the call, by then.
    pub call_until: DateTime<Utc>,
    /// The same for each repeat; `None` for reads.
    pub key: Option<String>,
    /// The OTP as it is stored, encrypted.
    pub otp_value: Option<Vec<u8>>,
}
