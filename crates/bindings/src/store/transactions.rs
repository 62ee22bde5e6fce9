//! Headers of transactions, and the records of their calls.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use jobs::BindingId;
use model::binding::{Binding, CallAction, ServerId, TransactionHeader, TrxId};
use serde::Serialize;
use sqlx::FromRow;

use super::servers::ServerStanding;
use crate::provider_client::CallRecord;
use foundation::db::Pool;

/// Record of a call, with its start time.
#[derive(Debug, Clone)]
pub struct EndedCallRecord {
    pub record: CallRecord,
    /// Postgres' time from which the record's durations count.
    pub begun_at: DateTime<Utc>,
}

/// A header, with the server to which its calls go.
#[derive(Debug, Clone, FromRow)]
pub struct LoadedTransaction {
    #[sqlx(flatten)]
    pub header: TransactionHeader,
    #[sqlx(flatten)]
    pub server: ServerStanding,
}

/// Returns the header of one cycle, with the current state of its server.
pub async fn load_transaction(
    db: &Pool,
    binding: &BindingId,
    cycle: i64,
) -> Result<Option<LoadedTransaction>, sqlx::Error> {
    sqlx::query_as(
        "-- load transaction
         SELECT t.trx_id, t.binding_id, t.cycle, t.server_id, t.account_id, t.status, t.reason, t.provider_ref, t.asks,
                t.settle_at, t.started_at, t.ended_at,
                s.id AS standing_id, s.provider, s.base_url, s.enabled, s.repeats_are_safe,
                s.failures AS server_failures, s.paused_until
         FROM transactions t JOIN provider_servers s ON s.id = t.server_id
         WHERE t.binding_id = $1 AND t.cycle = $2",
    )
    .bind(binding.as_str())
    .bind(cycle)
    .fetch_optional(db)
    .await
}

/// Destination of an open call, and whether it follows a lost call.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct OpenCallRoute {
    #[sqlx(try_from = "String")]
    binding_id: BindingId,
    /// Server of the transaction, even if the binding has moved to another server.
    pub server_id: ServerId,
    /// Whether the previous call was declared lost.
    pub follows_loss: bool,
}

/// Returns the routes of the open calls among these bindings.
pub async fn find_open_routes(db: &Pool, rows: &[&Binding]) -> Result<HashMap<BindingId, OpenCallRoute>, sqlx::Error> {
    let (mut ids, mut cycles, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let Some((id, cycle)) = row.trx_id.as_ref().and_then(TrxId::parts) else { continue };
        ids.push(id.to_string());
        cycles.push(cycle);
        calls.push(row.call_no);
    }
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let routes: Vec<OpenCallRoute> = sqlx::query_as(
        "-- routes of open calls
         SELECT t.binding_id, t.server_id,
                EXISTS (SELECT 1 FROM transaction_snapshots e
                        WHERE e.binding_id = c.binding_id AND e.cycle = c.cycle AND e.call_no = c.call_no - 1
                          AND e.part = 'end' AND e.result = 'lost') AS follows_loss
         FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS c (binding_id, cycle, call_no)
         JOIN transactions t ON t.binding_id = c.binding_id AND t.cycle = c.cycle",
    )
    .bind(ids)
    .bind(cycles)
    .bind(calls)
    .fetch_all(db)
    .await?;
    Ok(routes.into_iter().map(|route| (route.binding_id.clone(), route)).collect())
}

/// Returns whether this owner wrote this claim; used after the response to the write was lost.
pub async fn was_claim_written(db: &Pool, trx_id: &TrxId, call_no: i64, owner: &str) -> Result<bool, sqlx::Error> {
    let Some((binding, cycle)) = trx_id.parts() else { return Ok(false) };
    sqlx::query_scalar(
        "-- was claim written
         SELECT EXISTS (SELECT 1 FROM transaction_snapshots
                        WHERE binding_id = $1 AND cycle = $2 AND call_no = $3 AND part = 'claim' AND owner = $4)",
    )
    .bind(binding.as_str())
    .bind(cycle)
    .bind(call_no)
    .bind(owner)
    .fetch_one(db)
    .await
}

/// One call of a transaction: its claim, and its end if there is one.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct CallRow {
    pub call_no: i64,
    pub action: CallAction,
    pub fence: i64,
    pub claimed_at: DateTime<Utc>,
    pub call_until: DateTime<Utc>,
    pub owner: Option<String>,
    pub ended_at: Option<DateTime<Utc>>,
    /// One-word result of the answer; `lost`: no answer was written.
    pub result: Option<String>,
    pub http_status: Option<i16>,
    pub sent_at: Option<DateTime<Utc>>,
    pub latency_us: Option<i64>,
    pub request: Option<String>,
    pub response: Option<String>,
}

/// Returns the first calls of one cycle, at most `limit`.
pub async fn list_calls(db: &Pool, binding: &BindingId, cycle: i64, limit: i64) -> Result<Vec<CallRow>, sqlx::Error> {
    sqlx::query_as(
        "-- calls of a transaction
         SELECT c.call_no, c.action, c.fence, c.at AS claimed_at, c.call_until, c.owner, e.at AS ended_at, e.result,
                e.http_status, e.sent_at, e.latency_us, e.request, e.response
         FROM transaction_snapshots c
         LEFT JOIN transaction_snapshots e
           ON e.binding_id = c.binding_id AND e.cycle = c.cycle AND e.call_no = c.call_no AND e.part = 'end'
         WHERE c.binding_id = $1 AND c.cycle = $2 AND c.part = 'claim'
         ORDER BY c.call_no LIMIT $3",
    )
    .bind(binding.as_str())
    .bind(cycle)
    .bind(limit)
    .fetch_all(db)
    .await
}
