//! Writes changes of bindings, many in one statement and one commit.
//!
//! A change is written only if its row still has the version that the decision used. Rows that another session has
//! locked are skipped, so batches never wait for each other, and their callers decide again. If Postgres rejects a
//! batch because of one change, the batch is halved until that change is alone with its error. Messages, events and
//! alerts of a change are written in the same transaction.

use std::{collections::HashMap, sync::Arc};

use model::{
    binding::BindingChange,
    messages::{ChannelRoutes, NO_ORDER},
};

use super::{
    BatchError, WriteResult, alerts, json_of,
    transactions::EndedCallRecord,
    values::{BindingEventValues, BindingValues, HeaderValues, MessageValues, SnapshotValues},
};
use foundation::{
    crash,
    db::{Connection, Pool, write_or_halve},
};

/// A change to write, with data that is not part of the decision.
#[derive(Debug, Clone)]
pub struct BindingWrite {
    pub change: BindingChange,
    /// Unique to this write. It identifies a claim if the response to the write was lost.
    pub owner: Arc<str>,
    /// Record of the call that the change ends.
    pub call: Option<EndedCallRecord>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteVerdict {
    /// The change was written. `messages` are the ids of its new outbox messages, whose jobs must exist now.
    Written { messages: Vec<i64> },
    /// Another change was written first, or is being written. The caller must decide again.
    Conflict,
}

/// Returns one result per change, in the same order. Changes with messages or events are a separate batch of several
/// statements. The other changes need one statement, so their rows are locked for less time.
pub(super) async fn write_all(db: &Pool, routes: &Arc<ChannelRoutes>, items: Vec<BindingWrite>) -> Vec<WriteResult> {
    let are_told: Vec<bool> = items.iter().map(|item| is_told(&item.change, routes)).collect();
    let items: Vec<_> = items.into_iter().map(Arc::new).collect();
    let of_kind =
        |told| items.iter().zip(&are_told).filter(move |(_, is)| **is == told).map(|(item, _)| item.clone()).collect();
    let mut plain = write_batch(db, routes, of_kind(false), false).await.into_iter();
    let mut told = write_batch(db, routes, of_kind(true), true).await.into_iter();
    are_told.iter().filter_map(|is_told| if *is_told { told.next() } else { plain.next() }).collect()
}

async fn write_batch(
    db: &Pool,
    routes: &Arc<ChannelRoutes>,
    items: Vec<Arc<BindingWrite>>,
    are_told: bool,
) -> Vec<WriteResult> {
    if items.is_empty() {
        return Vec::new();
    }
    let results = write_or_halve(&items, |items| {
        let (db, routes) = (db.clone(), routes.clone());
        async move {
            let mut session = db.acquire().await?;
            let mut written = if are_told {
                write_told(&mut session, &routes, &items).await?
            } else {
                write_plain(&mut session, &items).await?
            };
            let mut verdict = |item: &BindingWrite| match written.remove(item.change.binding.id.as_str()) {
                Some(messages) => WriteVerdict::Written { messages },
                None => WriteVerdict::Conflict,
            };
            Ok(items.iter().map(|item| verdict(item)).collect())
        }
    });
    results.await.into_iter().map(|result| result.map_err(BatchError::from)).collect()
}

/// Returns whether the change has events, messages or alerts.
fn is_told(change: &BindingChange, routes: &ChannelRoutes) -> bool {
    !change.events.is_empty()
        || MessageValues::from_change(change, routes).next().is_some()
        || alerts::concerns_desk(change)
}

/// Ids of the written bindings, each with the ids of its new messages.
type WrittenRows = HashMap<String, Vec<i64>>;

/// Writes changes without events, messages and alerts, which claims and most answers are. Returns the written bindings.
/// They need one statement, which is its own transaction.
async fn write_plain(db: &mut Connection, items: &[Arc<BindingWrite>]) -> Result<WrittenRows, sqlx::Error> {
    crash::reach_point("binding", "commits");
    let written = write_core(db, items).await?;
    crash::reach_point("binding", "committed");
    Ok(written)
}

/// Same as [`write_plain`], with the events, messages and alerts of the changes.
async fn write_told(
    db: &mut Connection,
    routes: &ChannelRoutes,
    items: &[Arc<BindingWrite>],
) -> Result<WrittenRows, sqlx::Error> {
    let mut tx = db.begin().await?;
    let mut written = write_core(&mut tx, items).await?;
    let changes = items.iter().map(|item| &item.change);
    let changes: Vec<_> = changes.filter(|change| written.contains_key(change.binding.id.as_str())).collect();
    write_events(&mut tx, &changes).await?;
    for (binding_id, message) in write_messages(&mut tx, routes, &changes).await? {
        written.entry(binding_id).or_default().push(message);
    }
    let told = alerts::write_alerts(&mut tx, changes.into_iter()).await?;
    crash::reach_point("binding", "commits");
    tx.commit().await?;
    told.record_in_metrics();
    crash::reach_point("binding", "committed");
    Ok(written)
}

/// Writes rows, headers and call records.
async fn write_core(db: &mut Connection, items: &[Arc<BindingWrite>]) -> Result<WrittenRows, sqlx::Error> {
    let bindings: Vec<_> = items.iter().map(|item| BindingValues::from_change(&item.change)).collect();
    let headers: Vec<_> = items.iter().filter_map(|item| HeaderValues::from_change(&item.change)).collect();
    let snapshots: Vec<_> = items
        .iter()
        .flat_map(|item| SnapshotValues::from_change(&item.change, &item.owner, item.call.as_ref()))
        .collect();
    // Postgres estimates 100 rows for a JSON text. With that estimate it would scan a whole table of a few thousand
    // rows each time. For a LIMIT with an unknown value, it estimates a tenth.
    let written: Vec<String> = sqlx::query_scalar(include_str!("write_core.sql"))
        .bind(json_of(&bindings)?)
        .bind(json_of(&headers)?)
        .bind(json_of(&snapshots)?)
        .bind(i64::try_from(items.len()).unwrap_or(i64::MAX))
        .fetch_all(db)
        .await?;
    Ok(written.into_iter().map(|id| (id, Vec::new())).collect())
}

async fn write_events(db: &mut Connection, changes: &[&BindingChange]) -> Result<(), sqlx::Error> {
    let events: Vec<_> = changes.iter().flat_map(|change| BindingEventValues::from_change(change)).collect();
    if events.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "-- write binding events
         INSERT INTO binding_events (binding_id, at, kind, reason, actor, key_id, cycle, detail, given_reason, old_value,
                                     new_value)
         SELECT e.binding_id, e.at, e.kind, e.reason, e.actor, e.key_id, e.cycle, e.detail, e.given_reason, e.old_value,
                e.new_value
         FROM ROWS FROM (json_to_recordset($1::json) AS (
             binding_id text, at timestamptz, kind text, reason text, actor text, key_id uuid, cycle bigint,
             detail text, given_reason text, old_value jsonb, new_value jsonb)) WITH ORDINALITY
             AS e (binding_id, at, kind, reason, actor, key_id, cycle, detail, given_reason, old_value, new_value, place)
         ORDER BY e.place",
    )
    .bind(json_of(&events)?)
    .execute(db)
    .await
    .map(drop)
}

/// Writes the messages. Returns the new ids with their bindings, oldest first.
async fn write_messages(
    db: &mut Connection,
    routes: &ChannelRoutes,
    changes: &[&BindingChange],
) -> Result<Vec<(String, i64)>, sqlx::Error> {
    let messages: Vec<_> = changes.iter().flat_map(|change| MessageValues::from_change(change, routes)).collect();
    if messages.is_empty() {
        return Ok(Vec::new());
    }
    let mut written: Vec<(String, i64)> = sqlx::query_as(
        "-- write binding messages
         INSERT INTO outbox (order_id, binding_id, kind, channel, dedupe_key, payload, next_attempt_at, expires_at, created_at)
         SELECT $2::text, m.binding_id, m.kind, m.channel, m.dedupe_key, m.payload, m.at, m.expires_at, m.at
         FROM json_to_recordset($1::json) AS m (
             binding_id text, kind text, channel text, dedupe_key text, payload jsonb, at timestamptz,
             expires_at timestamptz)
         ON CONFLICT DO NOTHING RETURNING binding_id, id",
    )
    .bind(json_of(&messages)?)
    .bind(NO_ORDER)
    .fetch_all(db)
    .await?;
    written.sort_unstable_by_key(|(_, id)| *id);
    Ok(written)
}
