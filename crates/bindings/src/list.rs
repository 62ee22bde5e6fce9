//! Lists of bindings, transactions and events.

use chrono::{DateTime, Utc};
use jobs::BindingId;
use model::binding::{AccountId, BindingState, ServerId, TransactionHeader, TransactionStatus, TrxId};
use serde::{Deserialize, Serialize};
use sqlx::FromRow;

use crate::store::{
    load::{self, BindingPage},
    transactions::{self, CallRow},
};
use foundation::core::Core;

/// Maximum number of calls shown for one transaction.
const MOST_CALLS: i64 = 200;

/// Number of latest events that are searched for a note.
const RECENT_EVENTS: i64 = 50;

/// Filter for bindings; absent fields match all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BindingFilter {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_id: Option<ServerId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account_id: Option<AccountId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<BindingState>,
}

/// Returns one page of bindings that are not deleted, ordered by id. `after` is the last id of the previous page, even
/// if the row with that id is unreadable.
pub async fn list_bindings(
    core: &Core,
    filter: &BindingFilter,
    after: Option<&str>,
    limit: i64,
) -> Result<BindingPage, sqlx::Error> {
    load::list_rows(
        &core.db,
        filter.server_id.as_ref(),
        filter.account_id.as_ref(),
        filter.state,
        after.unwrap_or_default(),
        limit,
    )
    .await
}

/// Returns one page of a binding's transactions, newest first. The page contains only cycles before `before`.
pub async fn list_transactions(
    core: &Core,
    id: &BindingId,
    status: Option<TransactionStatus>,
    before: Option<i64>,
    limit: i64,
) -> Result<Vec<TransactionHeader>, sqlx::Error> {
    sqlx::query_as(
        "-- list transactions
         SELECT trx_id, binding_id, cycle, server_id, account_id, status, reason, provider_ref, asks, settle_at,
                started_at, ended_at
         FROM transactions
         WHERE binding_id = $1 AND cycle < $2 AND ($3::text IS NULL OR status = $3)
         ORDER BY cycle DESC LIMIT $4",
    )
    .bind(id.as_str())
    .bind(before.unwrap_or(i64::MAX))
    .bind(status)
    .bind(limit)
    .fetch_all(&core.db)
    .await
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShownTransaction {
    #[serde(flatten)]
    pub header: TransactionHeader,
    pub calls: Vec<CallRow>,
}

/// Returns one transaction with the records of its calls.
pub async fn find_transaction(core: &Core, trx_id: &TrxId) -> Result<Option<ShownTransaction>, sqlx::Error> {
    let Some((binding, cycle)) = trx_id.parts() else { return Ok(None) };
    let Some(loaded) = transactions::load_transaction(&core.db, &binding, cycle).await? else { return Ok(None) };
    let calls = transactions::list_calls(&core.db, &binding, cycle, MOST_CALLS).await?;
    Ok(Some(ShownTransaction { header: loaded.header, calls }))
}

/// An event in a binding's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, FromRow)]
pub struct BindingEventRow {
    pub seq: i64,
    pub at: DateTime<Utc>,
    pub kind: String,
    pub reason: Option<String>,
    pub actor: String,
    pub cycle: Option<i64>,
    pub detail: Option<String>,
}

/// Returns the latest events of a binding, newest first.
pub async fn list_events(core: &Core, id: &BindingId, limit: i64) -> Result<Vec<BindingEventRow>, sqlx::Error> {
    sqlx::query_as(
        "-- events of a binding
         SELECT seq, at, kind, reason, actor, cycle, detail FROM binding_events
         WHERE binding_id = $1 ORDER BY seq DESC LIMIT $2",
    )
    .bind(id.as_str())
    .bind(limit)
    .fetch_all(&core.db)
    .await
}

/// Returns whether one of the latest events of a binding has this note.
pub async fn has_noted_event(core: &Core, id: &BindingId, note: &str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(
        "-- noted event of a binding
         SELECT EXISTS (
             SELECT 1 FROM (SELECT detail FROM binding_events WHERE binding_id = $1 ORDER BY seq DESC LIMIT $2) e
             WHERE detail = $3)",
    )
    .bind(id.as_str())
    .bind(RECENT_EVENTS)
    .bind(note)
    .fetch_one(&core.db)
    .await
}
