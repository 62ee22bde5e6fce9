//! Header of one cycle, and records of its calls.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{AccountId, CallAction, ServerId, TrxId};
use jobs::BindingId;

/// State of a transaction. SUKSES, PROCESSING and GAGAL are the provider's words.
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
pub enum TransactionStatus {
    /// Claimed. The provider has not confirmed the start.
    Started,
    Processing,
    WaitingOtp,
    /// Final: done.
    Sukses,
    /// Final: failed.
    Gagal,
    /// The transaction stayed open too long. The provider is asked at growing intervals until it is final.
    Unresolved,
}

impl TransactionStatus {
    pub const ALL: [Self; 6] =
        [Self::Started, Self::Processing, Self::WaitingOtp, Self::Sukses, Self::Gagal, Self::Unresolved];

    pub fn as_str(self) -> &'static str {
        self.into()
    }

    pub fn is_final(self) -> bool {
        matches!(self, Self::Sukses | Self::Gagal)
    }
}

/// A row of `transactions`.
#[derive(Debug, Clone, PartialEq, Serialize, sqlx::FromRow)]
pub struct TransactionHeader {
    pub trx_id: TrxId,
    #[sqlx(try_from = "String")]
    pub binding_id: BindingId,
    pub cycle: i64,
    pub server_id: ServerId,
    pub account_id: AccountId,
    pub status: TransactionStatus,
    /// Reason for GAGAL or UNRESOLVED.
    pub reason: Option<String>,
    pub provider_ref: Option<String>,
    /// Number of status requests since it became UNRESOLVED.
    pub asks: i32,
    /// Time of the next status request; set while UNRESOLVED.
    pub settle_at: Option<DateTime<Utc>>,
    pub started_at: DateTime<Utc>,
    pub ended_at: Option<DateTime<Utc>>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum HeaderChange {
    Begin(Box<TransactionHeader>),
    Move {
        cycle: i64,
        status: TransactionStatus,
        reason: Option<String>,
        /// `None` keeps the stored value.
        provider_ref: Option<String>,
        settle_at: Option<DateTime<Utc>>,
    },
    /// The provider is asked about an UNRESOLVED transaction.
    Ask {
        cycle: i64,
        asks: i32,
        settle_at: DateTime<Utc>,
    },
}

impl HeaderChange {
    pub fn cycle(&self) -> i64 {
        match self {
            Self::Begin(header) => header.cycle,
            Self::Move { cycle, .. } | Self::Ask { cycle, .. } => *cycle,
        }
    }

    /// Returns the header after this change; `None` if there is no header to change or it is already final.
    #[must_use]
    pub fn apply_to(&self, before: Option<&TransactionHeader>, at: DateTime<Utc>) -> Option<TransactionHeader> {
        match (self, before) {
            (Self::Begin(header), None) => Some((**header).clone()),
            (Self::Move { status, reason, provider_ref, settle_at, .. }, Some(before)) if !before.status.is_final() => {
                Some(TransactionHeader {
                    status: *status,
                    reason: reason.clone(),
                    provider_ref: provider_ref.clone().or_else(|| before.provider_ref.clone()),
                    settle_at: *settle_at,
                    ended_at: status.is_final().then_some(at),
                    ..before.clone()
                })
            }
            (Self::Ask { asks, settle_at, .. }, Some(before)) if before.status == TransactionStatus::Unresolved => {
                Some(TransactionHeader { asks: *asks, settle_at: Some(*settle_at), ..before.clone() })
            }
            _ => None,
        }
    }
}

/// Record of a call, inserted by its claim.
#[derive(Debug, Clone, PartialEq)]
pub struct CallOpening {
    pub trx_id: TrxId,
    pub cycle: i64,
    /// Number of the call within the binding, from 1 without gaps.
    pub call_no: i64,
    pub action: CallAction,
    /// The binding's version after the claim.
    pub fence: i64,
    pub claimed_at: DateTime<Utc>,
    pub call_until: DateTime<Utc>,
}

/// End of a call's record.
#[derive(Debug, Clone, PartialEq)]
pub struct CallEnding {
    pub cycle: i64,
    pub call_no: i64,
    /// Result of the call: a label of [`ProviderAnswer::label`](super::ProviderAnswer::label), or `lost`.
    pub result: &'static str,
    pub ended_at: DateTime<Utc>,
}

impl CallEnding {
    /// Result of a call whose answer was never written.
    pub const LOST: &'static str = "lost";
}
