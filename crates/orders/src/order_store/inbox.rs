//! Stores callbacks of partners, many in one statement and one commit.

use std::{collections::HashMap, sync::Arc};

use chrono::{DateTime, Utc};
use jobs::OrderId;
use model::ids::PartnerName;
use serde::Serialize;
use serde_json::Value;

use foundation::db::{Pool, write_or_halve};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, sqlx::Type, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum CallbackState {
    /// Waits to be processed.
    Pending,
    Processed,
    /// Processed without any change.
    Ignored,
    /// Its booking is not known yet. It becomes pending when the booking is known.
    Unmatched,
}

impl CallbackState {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[derive(Debug, Clone, sqlx::FromRow)]
pub struct InboxRow {
    pub id: i64,
    /// `None` if its booking is not known (yet).
    pub order_id: Option<String>,
    pub state: CallbackState,
    pub received_at: DateTime<Utc>,
    /// Whether this call stored it.
    #[sqlx(default)]
    pub is_new: bool,
}

#[derive(Debug, Clone, Serialize)]
pub struct NewCallback {
    pub partner: PartnerName,
    pub event_id: String,
    pub booking_id: String,
    /// Order that our reference names.
    pub referred: Option<OrderId>,
    /// Reason why it is ignored.
    pub ignored: Option<&'static str>,
    /// Version of the order that our reference names, if the callback is ignored because of that version. Another
    /// version may need the callback.
    pub ignored_at: Option<i64>,
    pub body: Value,
}

#[derive(Debug, Clone)]
pub struct IgnoredCallback {
    pub id: i64,
    pub why: &'static str,
}

pub(super) type StoreResult = Result<InboxRow, sqlx::Error>;

#[derive(sqlx::FromRow)]
struct StoredRow {
    partner: PartnerName,
    event_id: String,
    #[sqlx(flatten)]
    row: InboxRow,
}

/// Stores the callbacks. Returns one result per callback, in their order.
pub(super) async fn store_all(db: &Pool, items: Vec<NewCallback>) -> Vec<StoreResult> {
    let items: Vec<_> = items.into_iter().map(Arc::new).collect();
    write_or_halve(&items, |items| {
        let db = db.clone();
        async move { store_rows(&db, &items).await }
    })
    .await
}

async fn store_rows(db: &Pool, items: &[Arc<NewCallback>]) -> Result<Vec<InboxRow>, sqlx::Error> {
    let values: Vec<&NewCallback> = items.iter().map(|item| &**item).collect();
    let values = serde_json::to_string(&values).map_err(|error| sqlx::Error::Encode(error.into()))?;
    let mut rows: Vec<StoredRow> = sqlx::query_as(include_str!("store_rows.sql")).bind(values).fetch_all(db).await?;
    if rows.len() < items.len() {
        let known: Vec<(String, String)> =
            rows.iter().map(|r| (r.partner.as_str().to_owned(), r.event_id.clone())).collect();
        let is_known =
            |item: &NewCallback| known.iter().any(|(p, e)| *p == item.partner.as_str() && *e == item.event_id);
        let stored = items.iter().filter(|item| !is_known(item));
        let (partners, events): (Vec<&str>, Vec<&str>) =
            stored.map(|item| (item.partner.as_str(), item.event_id.as_str())).unzip();
        let stored: Vec<StoredRow> = sqlx::query_as(
            "-- stored callback
             SELECT i.partner, i.event_id, i.id, i.order_id, i.state, i.received_at
             FROM unnest($1::text[], $2::text[]) AS c (partner, event_id)
             JOIN inbox i ON i.partner = c.partner AND i.event_id = c.event_id",
        )
        .bind(partners)
        .bind(events)
        .fetch_all(db)
        .await?;
        rows.extend(stored);
    }
    let mut rows: HashMap<_, _> = rows.into_iter().map(|r| ((r.partner.into_string(), r.event_id), r.row)).collect();
    let mut row_of = |item: &NewCallback| {
        let key = (item.partner.as_str().to_owned(), item.event_id.clone());
        rows.remove(&key).ok_or(sqlx::Error::RowNotFound)
    };
    items.iter().map(|item| row_of(item)).collect()
}

/// Ignores the callbacks. Returns one result per callback, in their order: whether it is no longer pending.
pub(super) async fn ignore_all(db: &Pool, items: Vec<IgnoredCallback>) -> Vec<Result<bool, sqlx::Error>> {
    let items: Vec<_> = items.into_iter().map(Arc::new).collect();
    write_or_halve(&items, |items| {
        let db = db.clone();
        async move {
            let left = ignore_rows(&db, &items).await?;
            Ok(items.iter().map(|item| !left.contains(&item.id)).collect())
        }
    })
    .await
}

/// Skips callbacks that another session is processing and returns their ids, because that session may fail.
async fn ignore_rows(db: &Pool, items: &[Arc<IgnoredCallback>]) -> Result<Vec<i64>, sqlx::Error> {
    sqlx::query_scalar(
        "-- ignore callbacks
         WITH c AS MATERIALIZED (
             SELECT i.id, c.why FROM unnest($1::bigint[], $2::text[]) AS c (id, why) JOIN inbox i ON i.id = c.id
             WHERE i.state || '' = 'pending' ORDER BY i.id FOR NO KEY UPDATE OF i SKIP LOCKED),
         u AS (
             UPDATE inbox SET state = 'ignored', result = c.why, processed_at = dispatchq_now() FROM c
             WHERE inbox.id = c.id RETURNING inbox.id)
         SELECT i.id FROM inbox i
         WHERE i.id = ANY ($1) AND i.state || '' = 'pending' AND NOT EXISTS (SELECT 1 FROM u WHERE u.id = i.id)",
    )
    .bind(items.iter().map(|item| item.id).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.why).collect::<Vec<_>>())
    .fetch_all(db)
    .await
}
