//! Bindings and their transactions in answers. About an OTP an answer contains only the time of its submission.

use bindings::store::transactions::CallRow;
use chrono::{DateTime, Utc};
use model::binding::{
    Binding, BindingConfig, BindingPhase, BindingState, CallAction, StopReason, TransactionHeader, TransactionStatus,
};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::{
    ToSchema,
    openapi::{
        Object, ObjectBuilder, Type,
        schema::{Array, ArrayBuilder, SchemaType},
    },
};

/// Current state of a binding.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Binding)]
pub(super) struct BindingView {
    id: String,
    server_id: String,
    account_id: String,
    #[schema(schema_with = state_schema)]
    state: BindingState,
    /// Reason for STOPPED or STOPPING; null if the binding never ran.
    #[schema(schema_with = reason_schema)]
    reason: Option<StopReason>,
    #[schema(value_type = ConfigSchema)]
    config: BindingConfig,
    /// Number of cycles started so far. Unless the phase is IDLE, the last one is open.
    cycle: i64,
    #[schema(schema_with = phase_schema)]
    phase: BindingPhase,
    /// The open transaction.
    trx_id: Option<String>,
    /// Whether the provider has confirmed the start of the open transaction.
    start_confirmed: bool,
    /// Due time of the newest cycle. `interval_ms` counts from it if `interval_from` is `begin`.
    interval_start: Option<DateTime<Utc>>,
    /// Time of the next cycle or of the next call to the provider.
    next_at: Option<DateTime<Utc>>,
    /// Number of calls claimed so far.
    call_no: i64,
    /// The open call.
    #[schema(schema_with = open_call_schema)]
    call_action: Option<CallAction>,
    /// End of the open call's claim. No other call is made before this time, unless the call ends earlier.
    call_until: Option<DateTime<Utc>>,
    /// Number of status requests about the open transaction.
    asks: i32,
    /// Number of consecutive failed transactions.
    failures: i32,
    /// Time when the open transaction becomes UNRESOLVED.
    processing_deadline: Option<DateTime<Utc>>,
    /// Deadline for an OTP.
    otp_deadline: Option<DateTime<Utc>>,
    /// Number of OTPs with a known outcome.
    otp_tries: i32,
    /// Time when the OTP without a known outcome was submitted.
    otp_submitted_at: Option<DateTime<Utc>>,
    /// Number of transactions that are UNRESOLVED.
    unresolved: i32,
    /// Version, incremented by every change.
    version: i64,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
    deleted_at: Option<DateTime<Utc>>,
    /// True if Postgres does not answer and this is the copy in Redis, which may be old.
    pub(super) stale: bool,
}

impl From<Binding> for BindingView {
    fn from(row: Binding) -> Self {
        Self {
            id: row.id.to_string(),
            server_id: row.server_id.to_string(),
            account_id: row.account_id.to_string(),
            state: row.state,
            reason: row.reason,
            config: row.config,
            cycle: row.cycle,
            phase: row.phase,
            trx_id: row.trx_id.map(String::from),
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
            otp_submitted_at: row.otp_submitted_at,
            unresolved: row.unresolved,
            version: row.version,
            created_at: row.created_at,
            updated_at: row.updated_at,
            deleted_at: row.deleted_at,
            stale: false,
        }
    }
}

/// Settings of a binding.
#[derive(ToSchema)]
#[schema(as = BindingConfig)]
#[expect(dead_code, reason = "describes the settings; the model reads and writes them")]
pub(super) struct ConfigSchema {
    /// Minimum and maximum milliseconds between one transaction and the start of the next.
    #[schema(schema_with = range_schema)]
    interval_ms: Option<Vec<u32>>,
    /// Start of `interval_ms`: `end` is the end of a transaction; `begin` is the time at which its cycle was due. With
    /// `begin` one cycle is due per interval, regardless of its duration. Missed cycles are not made up for.
    #[schema(schema_with = interval_from_schema)]
    interval_from: Option<String>,
    /// Number of frequent status requests about a transaction in PROCESSING. After them the pauses grow.
    #[schema(minimum = 1, maximum = 100)]
    max_retry_status: Option<u32>,
    /// Minimum and maximum milliseconds between a failed transaction and the start of the next.
    #[schema(schema_with = range_schema)]
    cooldown_on_error_ms: Option<Vec<u32>>,
    #[schema(minimum = 100, maximum = 60000)]
    call_timeout_ms: Option<u32>,
    /// Maximum duration of a transaction in milliseconds, without its waits for OTPs.
    #[schema(minimum = 1000, maximum = 86400000)]
    processing_timeout_ms: Option<u32>,
    /// Whether the binding continues or stops after `processing_timeout_ms`.
    #[schema(schema_with = policy_schema)]
    on_processing_timeout: Option<String>,
    /// Maximum wait for one OTP in milliseconds.
    #[schema(minimum = 1000, maximum = 86400000)]
    otp_timeout_ms: Option<u32>,
    /// Whether the binding continues or stops after `otp_timeout_ms`.
    #[schema(schema_with = policy_schema)]
    on_otp_timeout: Option<String>,
    /// Maximum number of OTPs for one transaction.
    #[schema(minimum = 1, maximum = 10)]
    otp_attempts: Option<u32>,
    /// Number of consecutive failed transactions after which the binding stops.
    #[schema(minimum = 1, maximum = 10000)]
    max_failures: Option<u32>,
}

/// One cycle of a binding.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Transaction)]
pub(super) struct TransactionView {
    trx_id: String,
    binding_id: String,
    cycle: i64,
    server_id: String,
    account_id: String,
    #[schema(schema_with = status_schema)]
    status: TransactionStatus,
    /// Reason for GAGAL or UNRESOLVED.
    reason: Option<String>,
    /// The provider's id of the transaction.
    provider_ref: Option<String>,
    /// Number of status requests since the transaction became UNRESOLVED.
    asks: i32,
    /// Time of the next status request while the transaction is UNRESOLVED.
    settle_at: Option<DateTime<Utc>>,
    started_at: DateTime<Utc>,
    ended_at: Option<DateTime<Utc>>,
}

impl From<TransactionHeader> for TransactionView {
    fn from(row: TransactionHeader) -> Self {
        Self {
            trx_id: row.trx_id.into(),
            binding_id: row.binding_id.to_string(),
            cycle: row.cycle,
            server_id: row.server_id.to_string(),
            account_id: row.account_id.to_string(),
            status: row.status,
            reason: row.reason,
            provider_ref: row.provider_ref,
            asks: row.asks,
            settle_at: row.settle_at,
            started_at: row.started_at,
            ended_at: row.ended_at,
        }
    }
}

/// One call to the provider: its claim, and its end if it has ended.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ProviderCall)]
pub(super) struct CallView {
    call_no: i64,
    #[schema(schema_with = action_schema)]
    action: CallAction,
    fence: i64,
    claimed_at: DateTime<Utc>,
    call_until: DateTime<Utc>,
    /// Process that claimed the call.
    owner: Option<String>,
    ended_at: Option<DateTime<Utc>>,
    /// Outcome of the call. `lost` if no outcome was recorded.
    result: Option<String>,
    http_status: Option<i16>,
    /// Time on the worker's clock, adjusted to the clock of Postgres. Null if nothing was sent.
    sent_at: Option<DateTime<Utc>>,
    latency_us: Option<i64>,
    request: Option<String>,
    response: Option<String>,
}

impl From<CallRow> for CallView {
    fn from(row: CallRow) -> Self {
        Self {
            call_no: row.call_no,
            action: row.action,
            fence: row.fence,
            claimed_at: row.claimed_at,
            call_until: row.call_until,
            owner: row.owner,
            ended_at: row.ended_at,
            result: row.result,
            http_status: row.http_status,
            sent_at: row.sent_at,
            latency_us: row.latency_us,
            request: row.request,
            response: row.response,
        }
    }
}

pub(crate) fn word_schema(words: impl IntoIterator<Item = &'static str>) -> Object {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words)).build()
}

fn word_or_null_schema(words: impl IntoIterator<Item = &'static str>) -> Object {
    let values = words.into_iter().map(Value::from).chain([Value::Null]);
    let types = SchemaType::Array(vec![Type::String, Type::Null]);
    ObjectBuilder::new().schema_type(types).enum_values(Some(values)).build()
}

pub(crate) fn state_schema() -> Object {
    word_schema(BindingState::ALL.map(BindingState::as_str))
}

pub(crate) fn state_or_null_schema() -> Object {
    word_or_null_schema(BindingState::ALL.map(BindingState::as_str))
}

pub(super) fn status_schema() -> Object {
    word_schema(TransactionStatus::ALL.map(TransactionStatus::as_str))
}

fn phase_schema() -> Object {
    word_schema(BindingPhase::ALL.map(BindingPhase::as_str))
}

fn reason_schema() -> Object {
    word_or_null_schema(StopReason::ALL.map(StopReason::as_str))
}

fn action_schema() -> Object {
    word_schema(CallAction::ALL.map(CallAction::as_str))
}

fn open_call_schema() -> Object {
    word_or_null_schema(CallAction::ALL.map(CallAction::as_str))
}

fn interval_from_schema() -> Object {
    word_schema(["end", "begin"])
}

fn policy_schema() -> Object {
    word_schema(["continue", "stop"])
}

fn range_schema() -> Array {
    let number = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).maximum(Some(86_400_000));
    ArrayBuilder::new().items(number).min_items(Some(2)).max_items(Some(2)).build()
}

/// Returns a binding that waits for its next cycle.
pub(super) fn example_binding() -> Value {
    json!({
        "id": "B-7", "server_id": "S1", "account_id": "A-1", "state": "RUNNING", "reason": null,
        "config": BindingConfig::default(), "cycle": 42, "phase": "IDLE", "trx_id": null, "start_confirmed": true,
        "interval_start": "2026-01-09T07:59:59.890Z", "next_at": "2026-01-09T08:00:00.450Z",
        "call_no": 44, "call_action": null, "call_until": null, "asks": 0, "failures": 0, "processing_deadline": null, "otp_deadline": null, "otp_tries": 0, "otp_submitted_at": null,
        "unresolved": 0, "version": 312, "created_at": "2026-01-08T08:00:00Z", "updated_at": "2026-01-09T08:00:00Z",
        "deleted_at": null, "stale": false,
    })
}

/// Returns a successful transaction.
pub(super) fn example_transaction() -> Value {
    json!({
        "trx_id": "B-7.42", "binding_id": "B-7", "cycle": 42, "server_id": "S1", "account_id": "A-1",
        "status": "SUKSES", "reason": null, "provider_ref": "P-efc1029f6348d06a", "asks": 0, "settle_at": null,
        "started_at": "2026-01-09T07:59:59.900Z", "ended_at": "2026-01-09T08:00:00Z",
    })
}

/// Returns the only call of [`example_transaction`].
pub(super) fn example_call() -> Value {
    json!({
        "call_no": 44, "action": "start", "fence": 311, "claimed_at": "2026-01-09T07:59:59.900Z",
        "call_until": "2026-01-09T08:00:05.900Z", "owner": "worker-1:019ba1c000007000800000000000000a",
        "ended_at": "2026-01-09T08:00:00Z", "result": "success", "http_status": 200,
        "sent_at": "2026-01-09T07:59:59.905Z", "latency_us": 51_000,
        "request": "{\"trx_id\":\"B-7.42\",\"binding_id\":\"B-7\",\"account_id\":\"A-1\",\"cycle\":42}",
        "response": "{\"trx_id\":\"B-7.42\",\"status\":\"SUKSES\"}",
    })
}

#[cfg(test)]
mod tests {
    use model::binding::{AccountId, BindingId, ServerId};

    use super::*;

    #[test]
    fn binding_view_equals_row_without_otp() {
        let ids: (BindingId, ServerId, AccountId) = ("B".parse().unwrap(), "S".parse().unwrap(), "A".parse().unwrap());
        let mut row = Binding::new_stopped(ids.0, ids.1, ids.2, BindingConfig::default(), Utc::now());
        row.otp_value = Some(vec![7; 40]);
        let mut expected = json!(row);
        expected["stale"] = json!(false);
        assert_eq!(json!(BindingView::from(row.clone())), expected);
        assert_eq!(json!(row).get("otp_value"), None);
    }
}
