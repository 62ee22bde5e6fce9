//! Bindings and their transactions as they are shown. Of an OTP no answer holds more than when it was handed in.

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

/// A binding as it stands.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Binding)]
pub(super) struct BindingView {
    id: String,
    server_id: String,
    account_id: String,
    #[schema(schema_with = state_schema)]
    state: BindingState,
    /// Why it is STOPPED or STOPPING; null for one that never ran.
    #[schema(schema_with = reason_schema)]
    reason: Option<StopReason>,
    #[schema(value_type = ConfigSchema)]
    config: BindingConfig,
    /// Cycles begun so far; the open one unless IDLE.
    cycle: i64,
    #[schema(schema_with = phase_schema)]
    phase: BindingPhase,
    /// The open transaction.
    trx_id: Option<String>,
    /// The provider has said that the open transaction began.
    start_confirmed: bool,
    /// From when the interval of the newest cycle counts where it counts from the begin: when that cycle was due.
    interval_start: Option<DateTime<Utc>>,
    /// When the next cycle begins, or the provider is called again.
    next_at: Option<DateTime<Utc>>,
    /// Calls claimed so far.
    call_no: i64,
    /// The open call.
    #[schema(schema_with = open_call_schema)]
    call_action: Option<CallAction>,
    /// No other call is made before, unless this one ends.
    call_until: Option<DateTime<Utc>>,
    /// Asks about the open transaction.
    asks: i32,
    /// Failed transactions in a row.
    failures: i32,
    /// When the open transaction becomes UNRESOLVED.
    processing_deadline: Option<DateTime<Utc>>,
    /// Until when an OTP is waited for.
    otp_deadline: Option<DateTime<Utc>>,
    /// OTPs whose outcome is known.
    otp_tries: i32,
    /// When the OTP was handed in whose outcome is not known yet.
    otp_submitted_at: Option<DateTime<Utc>>,
    /// Transactions that are UNRESOLVED.
    unresolved: i32,
    /// Raised by every change.
    version: i64,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
    deleted_at: Option<DateTime<Utc>>,
    /// True: Postgres does not answer, and this is the copy in Redis, which may be old.
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

/// What can be set about a binding.
#[derive(ToSchema)]
#[schema(as = BindingConfig)]
#[expect(dead_code, reason = "describes the settings; the model reads and writes them")]
pub(super) struct ConfigSchema {
    /// From one transaction to the next one's start: least and most milliseconds.
    #[schema(schema_with = range_schema)]
    interval_ms: Option<Vec<u32>>,
    /// From where `interval_ms` counts: `end`, the end of a transaction; or `begin`, the time at which its cycle was due, so that one is
    /// due each interval, however long it takes. Cycles that were missed are not made up for.
    #[schema(schema_with = interval_from_schema)]
    interval_from: Option<String>,
    /// Quick asks about a transaction in PROCESSING, before the pauses grow.
    #[schema(minimum = 1, maximum = 100)]
    max_retry_status: Option<u32>,
    /// From a transaction that failed to the next one's start: least and most milliseconds.
    #[schema(schema_with = range_schema)]
    cooldown_on_error_ms: Option<Vec<u32>>,
    #[schema(minimum = 100, maximum = 60000)]
    call_timeout_ms: Option<u32>,
    /// How long a transaction may stay open, waits for OTPs apart.
    #[schema(minimum = 1000, maximum = 86400000)]
    processing_timeout_ms: Option<u32>,
    /// What becomes of the binding then.
    #[schema(schema_with = policy_schema)]
    on_processing_timeout: Option<String>,
    /// How long one OTP is waited for.
    #[schema(minimum = 1000, maximum = 86400000)]
    otp_timeout_ms: Option<u32>,
    /// What becomes of the binding then.
    #[schema(schema_with = policy_schema)]
    on_otp_timeout: Option<String>,
    /// OTPs that may be tried for one transaction.
    #[schema(minimum = 1, maximum = 10)]
    otp_attempts: Option<u32>,
    /// Failed transactions in a row after which the binding stops.
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
    /// Why it is GAGAL or UNRESOLVED.
    reason: Option<String>,
    /// The provider's own id.
    provider_ref: Option<String>,
    /// Asks since it is UNRESOLVED.
    asks: i32,
    /// When the provider is asked again, while UNRESOLVED.
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

/// One call of the provider: its claim, and its end once it has one.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ProviderCall)]
pub(super) struct CallView {
    call_no: i64,
    #[schema(schema_with = action_schema)]
    action: CallAction,
    fence: i64,
    claimed_at: DateTime<Utc>,
    call_until: DateTime<Utc>,
    /// Which process claimed it.
    owner: Option<String>,
    ended_at: Option<DateTime<Utc>>,
    /// The answer in one word; `lost`: none was ever written.
    result: Option<String>,
    http_status: Option<i16>,
    /// By the worker's clock, set to Postgres'; null: nothing was sent.
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

/// A binding that waits for its next cycle.
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

/// A transaction that is done.
pub(super) fn example_transaction() -> Value {
    json!({
        "trx_id": "B-7.42", "binding_id": "B-7", "cycle": 42, "server_id": "S1", "account_id": "A-1",
        "status": "SUKSES", "reason": null, "provider_ref": "P-efc1029f6348d06a", "asks": 0, "settle_at": null,
        "started_at": "2026-01-09T07:59:59.900Z", "ended_at": "2026-01-09T08:00:00Z",
    })
}

/// Its only call.
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
    fn a_binding_is_shown_as_its_row_without_the_otp() {
        let ids: (BindingId, ServerId, AccountId) = ("B".parse().unwrap(), "S".parse().unwrap(), "A".parse().unwrap());
        let mut row = Binding::new_stopped(ids.0, ids.1, ids.2, BindingConfig::default(), Utc::now());
        row.otp_value = Some(vec![7; 40]);
        let mut expected = json!(row);
        expected["stale"] = json!(false);
        assert_eq!(json!(BindingView::from(row.clone())), expected);
        assert_eq!(json!(row).get("otp_value"), None);
    }
}
