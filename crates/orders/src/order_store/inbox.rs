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
    let mut rows: Vec<StoredRow> = sqlx::query_as(
        "-- store callback
         INSERT INTO inbox (partner, event_id, order_id, booking_id, body, state, result, received_at, processed_at)
         SELECT found.partner, found.event_id, found.id, found.booking_id, found.body,
                CASE WHEN found.nothing IS NOT NULL THEN 'ignored' WHEN found.id IS NULL THEN 'unmatched' ELSE 'pending' END,
                found.nothing, found.now, CASE WHEN found.nothing IS NOT NULL THEN found.now END
         FROM (SELECT located.*,
                      CASE WHEN located.ignored_at IS NULL
                                OR (located.id = located.referred
                                    AND (SELECT o.version FROM orders o WHERE o.id = located.id) = located.ignored_at)
                           THEN located.ignored END AS nothing,
                      dispatchq_now() AS now
               FROM (SELECT c.*,
                            coalesce((SELECT order_id FROM bookings
                                      WHERE partner = c.partner AND booking_id = c.booking_id),
                                     (SELECT order_id FROM bookings
                                      WHERE order_id = c.referred AND partner = c.partner LIMIT 1)) AS id
                     FROM json_to_recordset($1::json) AS c (
                         partner text, event_id text, booking_id text, referred text, ignored text, ignored_at bigint,
                         body jsonb)
                     ORDER BY c.partner, c.event_id) located) found
         ON CONFLICT (partner, event_id) DO NOTHING
         RETURNING partner, event_id, id, order_id, state, received_at, true AS is_new",
    )
    .bind(values)
    .fetch_all(db)
    .await?;
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
