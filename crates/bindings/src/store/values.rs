//! Values of the rows that a change writes, by table. They have the form that the statements of `write` read.

use chrono::{DateTime, Utc};
use model::{
    binding::{
        Binding, BindingChange, BindingConfig, BindingPhase, BindingState, CallAction, HeaderChange, StopReason,
        TransactionStatus,
    },
    messages::{ChannelRoutes, Message, binding_messages},
};
use serde::Serialize;

use super::transactions::EndedCallRecord;

/// Columns of `bindings` that a change may set.
#[derive(Serialize)]
pub(super) struct BindingValues<'a> {
    id: &'a str,
    expected: i64,
    server_id: &'a str,
    state: BindingState,
    reason: Option<StopReason>,
    config: &'a BindingConfig,
    cycle: i64,
    phase: BindingPhase,
    trx_id: Option<&'a str>,
    start_confirmed: bool,
    interval_start: Option<DateTime<Utc>>,
    next_at: Option<DateTime<Utc>>,
    call_no: i64,
    call_action: Option<CallAction>,
    call_until: Option<DateTime<Utc>>,
    asks: i32,
    failures: i32,
    processing_deadline: Option<DateTime<Utc>>,
    otp_deadline: Option<DateTime<Utc>>,
    otp_tries: i32,
    otp_value: Option<String>,
    otp_submitted_at: Option<DateTime<Utc>>,
    unresolved: i32,
    updated_at: DateTime<Utc>,
    deleted_at: Option<DateTime<Utc>>,
}

impl<'a> BindingValues<'a> {
    pub(super) fn from_change(change: &'a BindingChange) -> Self {
        let row: &Binding = &change.binding;
        Self {
            id: row.id.as_str(),
            expected: change.version,
            server_id: row.server_id.as_str(),
            state: row.state,
            reason: row.reason,
            config: &row.config,
            cycle: row.cycle,
            phase: row.phase,
            trx_id: row.trx_id.as_ref().map(model::binding::TrxId::as_str),
            start_confirmed: row.start_confirmed,
            interval_start: row.interval_start,
            next_at: row.next_at,
            call_no: row.call_no,
            call_action: row.call_action,
            call_until: row.call_until,
            asks: row.asks,
            failures: row.failures,
            processing_deadline: row.processing_deadline,
            otp_deadline: row.otp_deadline,
            otp_tries: row.otp_tries,
            otp_value: row.otp_value.as_ref().map(|sealed| format!("\\x{}", hex::encode(sealed))),
            otp_submitted_at: row.otp_submitted_at,
            unresolved: row.unresolved,
            updated_at: change.at,
            deleted_at: row.deleted_at,
        }
    }
}

/// Values of a new header (`begins`), or changes of an existing one.
#[derive(Serialize)]
pub(super) struct HeaderValues<'a> {
    binding_id: &'a str,
    cycle: i64,
    begins: bool,
    trx_id: Option<&'a str>,
    server_id: Option<&'a str>,
    account_id: Option<&'a str>,
    status: Option<TransactionStatus>,
    reason: Option<&'a str>,
    provider_ref: Option<&'a str>,
    asks: Option<i32>,
    settle_at: Option<DateTime<Utc>>,
    at: DateTime<Utc>,
}

impl<'a> HeaderValues<'a> {
    pub(super) fn from_change(change: &'a BindingChange) -> Option<Self> {
        let header = change.header.as_ref()?;
        let values = Self {
            binding_id: change.binding.id.as_str(),
            cycle: header.cycle(),
            begins: false,
            trx_id: None,
            server_id: None,
            account_id: None,
            status: None,
            reason: None,
            provider_ref: None,
            asks: None,
            settle_at: None,
            at: change.at,
        };
        Some(match header {
            HeaderChange::Begin(header) => Self {
                begins: true,
                trx_id: Some(header.trx_id.as_str()),
                server_id: Some(header.server_id.as_str()),
                account_id: Some(header.account_id.as_str()),
                status: Some(header.status),
                ..values
            },
            HeaderChange::Move { status, reason, provider_ref, settle_at, .. } => Self {
                status: Some(*status),
                reason: reason.as_deref(),
                provider_ref: provider_ref.as_deref(),
                settle_at: *settle_at,
                ..values
            },
            HeaderChange::Ask { asks, settle_at, .. } => {
                Self { asks: Some(*asks), settle_at: Some(*settle_at), ..values }
            }
        })
    }
}

/// A row of `transaction_snapshots`.
#[derive(Serialize)]
pub(super) struct SnapshotValues<'a> {
    binding_id: &'a str,
    cycle: i64,
    call_no: i64,
    part: &'static str,
    at: DateTime<Utc>,
    action: Option<CallAction>,
    fence: Option<i64>,
    call_until: Option<DateTime<Utc>>,
    owner: Option<&'a str>,
    result: Option<&'static str>,
    http_status: Option<u16>,
    sent_at: Option<DateTime<Utc>>,
    latency_us: Option<u64>,
    request: Option<&'a str>,
    response: Option<&'a str>,
}

impl<'a> SnapshotValues<'a> {
    pub(super) fn from_change(
        change: &'a BindingChange,
        owner: &'a str,
        call: Option<&'a EndedCallRecord>,
    ) -> impl Iterator<Item = Self> {
        let values = |cycle, call_no, part| Self {
            binding_id: change.binding.id.as_str(),
            cycle,
            call_no,
            part,
            at: change.at,
            action: None,
            fence: None,
            call_until: None,
            owner: None,
            result: None,
            http_status: None,
            sent_at: None,
            latency_us: None,
            request: None,
            response: None,
        };
        let claim = change.opening.as_ref().map(|opening| Self {
            action: Some(opening.action),
            fence: Some(opening.fence),
            call_until: Some(opening.call_until),
            owner: Some(owner),
            ..values(opening.cycle, opening.call_no, "claim")
        });
        let end = change.ending.as_ref().map(|ending| {
            let record = call.map(|call| &call.record);
            Self {
                result: Some(ending.result),
                http_status: record.and_then(|record| record.http_status),
                sent_at: call.and_then(|call| {
                    Some(call.begun_at + chrono::TimeDelta::from_std(call.record.sent_after?).unwrap_or_default())
                }),
                latency_us: record
                    .and_then(|record| record.latency)
                    .map(|latency| u64::try_from(latency.as_micros()).unwrap_or(u64::MAX)),
                request: record.and_then(|record| record.request.as_deref()),
                response: record.and_then(|record| record.response.as_deref()),
                ..values(ending.cycle, ending.call_no, "end")
            }
        });
        end.into_iter().chain(claim)
    }
}

/// A row of `binding_events`.
#[derive(Serialize)]
pub(super) struct BindingEventValues<'a> {
    binding_id: &'a str,
    at: DateTime<Utc>,
    kind: &'static str,
    reason: Option<StopReason>,
    actor: String,
    key_id: Option<uuid::Uuid>,
    cycle: i64,
    detail: Option<&'a str>,
    given_reason: Option<&'a str>,
    old_value: Option<&'a serde_json::Value>,
    new_value: Option<&'a serde_json::Value>,
}

impl<'a> BindingEventValues<'a> {
    pub(super) fn from_change(change: &'a BindingChange) -> impl Iterator<Item = Self> {
        change.events.iter().map(|event| Self {
            binding_id: change.binding.id.as_str(),
            at: change.at,
            kind: event.kind.as_str(),
            reason: event.reason,
            actor: change.actor.to_string(),
            key_id: change.actor.key,
            cycle: change.binding.cycle,
            detail: event.detail.as_deref(),
            given_reason: event.given_reason.as_deref(),
            old_value: event.values.as_ref().map(|values| &values.old),
            new_value: event.values.as_ref().map(|values| &values.new),
        })
    }
}

/// A row of `outbox`.
#[derive(Serialize)]
pub(super) struct MessageValues<'a> {
    binding_id: &'a str,
    kind: String,
    channel: String,
    dedupe_key: String,
    payload: serde_json::Value,
    at: DateTime<Utc>,
    expires_at: DateTime<Utc>,
}

impl<'a> MessageValues<'a> {
    /// Returns one row per message and channel.
    pub(super) fn from_change(change: &'a BindingChange, routes: &'a ChannelRoutes) -> impl Iterator<Item = Self> {
        binding_messages(change).flat_map(move |message| {
            let stored = message.to_stored();
            let Message { audience, dedupe_key, expires_at, .. } = message;
            let channels = routes.channels_for(&audience).to_vec();
            channels.into_iter().map(move |channel| Self {
                binding_id: change.binding.id.as_str(),
                kind: stored.kind.clone(),
                channel,
                dedupe_key: dedupe_key.clone(),
                payload: stored.payload.clone(),
                at: change.at,
                expires_at,
            })
        })
    }
}
