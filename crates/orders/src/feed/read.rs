//! Pages of steps, and the cursor between them.
//!
//! The order of a sequence is not the order of commits: a transaction may become visible after one that drew a higher
//! number. A reader that remembers the highest number would skip it. Each row therefore also has a position, and rows
//! are read in that order, up to the horizon. No row can be added below the horizon, so a cursor skips nothing. Two SQL
//! functions return positions and the horizon; on Postgres they use transaction ids. The cost: an open transaction
//! delays the steps of all later transactions until it ends.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    str::FromStr,
};

use chrono::{DateTime, Utc};
use jobs::OrderId;
use model::{
    details::{EventContents, EventPickup, OrderPlace},
    ids::DriverId,
    messages::{STEP_VERSION, body::StepBody},
    order::{EventReason, OrderStatus, OrderStep},
};
use serde::Serialize;
use sqlx::PgExecutor;

use crate::details::load_event_contents;
use foundation::db::Pool;

/// Steps that one statement checks when a driver is erased.
const ERASED_AT_ONCE: i64 = 5_000;

/// Orders whose steps are read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum FeedScope {
    All,
    /// The orders of the producer with this name.
    Producer(String),
}

/// Place in the feed: after this step, or before all steps of a position.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FeedCursor {
    pub(super) position: i64,
    pub(super) seq: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a cursor is what an answer gave as `next`")]
pub struct InvalidFeedCursor;

impl fmt::Display for FeedCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.position, self.seq)
    }
}

impl FromStr for FeedCursor {
    type Err = InvalidFeedCursor;

    fn from_str(text: &str) -> Result<Self, InvalidFeedCursor> {
        let is_number = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        let parse = |part: &str| part.parse().ok().filter(|_| is_number(part)).ok_or(InvalidFeedCursor);
        let (position, seq) = text.split_once('-').ok_or(InvalidFeedCursor)?;
        Ok(Self { position: parse(position)?, seq: parse(seq)? })
    }
}

/// A step, in the same format as in webhooks.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct StepEvent {
    #[serde(rename = "type")]
    #[schema(value_type = OrderStep)]
    pub step: String,
    /// Time of the step.
    pub timestamp: DateTime<Utc>,
    /// Version of this format. Fields may be added within a version.
    pub version: u16,
    pub data: StepData,
}

/// Data of a step.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct StepData {
    /// Increases with the steps of one order. Unique among all steps.
    pub seq: i64,
    pub order_id: String,
    /// Status after the step.
    #[schema(value_type = OrderStatus)]
    pub status: String,
    /// Status before the step; null for a creation.
    #[schema(value_type = Option<OrderStatus>)]
    pub previous_status: Option<String>,
    /// Reason, as in the order's timeline.
    pub reason: String,
    /// The attempt, from 1; null before the first.
    pub attempt_no: Option<i32>,
    /// Driver of the order after the change that the step belongs to.
    pub driver_id: Option<String>,
    /// Names of the changed members of the order. Only in `order.updated`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub changed: Option<Vec<String>>,
    /// Pickup of the order as it is now. Absent if the order has no contents.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub pickup: Option<EventPickup>,
    /// Destination of the order as it is now; null if there is none, or if it was erased. Absent like `pickup`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<OrderPlace>)]
    pub dropoff: Option<Option<OrderPlace>>,
    /// The producer's own values as they are now; empty if they were erased. Absent like `pickup`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub metadata: Option<BTreeMap<String, String>>,
}

impl StepData {
    fn with_contents(self, contents: EventContents) -> Self {
        let EventContents { pickup, dropoff, metadata } = contents;
        Self { pickup: Some(pickup), dropoff: Some(dropoff), metadata: Some(metadata), ..self }
    }
}

/// Page of steps after a cursor.
#[derive(Debug, Clone, PartialEq)]
pub struct FeedPage {
    pub events: Vec<StepEvent>,
    /// Start of the next page.
    pub next: FeedCursor,
}

#[derive(Debug, sqlx::FromRow)]
pub(super) struct FeedRow {
    position: i64,
    pub(super) seq: i64,
    pub(super) order_id: String,
    pub(super) kind: String,
    pub(super) status: String,
    pub(super) from_status: Option<String>,
    pub(super) reason: String,
    pub(super) attempt_no: Option<i32>,
    pub(super) driver_id: Option<String>,
    pub(super) at: DateTime<Utc>,
    pub(super) changed: Option<Vec<String>>,
    pub(super) has_details: bool,
}

impl FeedRow {
    pub(super) fn cursor(&self) -> FeedCursor {
        FeedCursor { position: self.position, seq: self.seq }
    }
}

/// Returns at most `limit` steps after `after`, up to the horizon below which no step can be added. Returns `None` if
/// the cursor is ahead of this database and therefore from another one.
pub(super) async fn load_page(
    db: &Pool,
    scope: &FeedScope,
    after: FeedCursor,
    limit: u32,
) -> Result<Option<FeedPage>, sqlx::Error> {
    // Read the horizon before the rows: all rows below it are committed, so the second statement sees them.
    let horizon = load_horizon(db).await?;
    if after.position > horizon {
        return Ok(None);
    }
    let rows = match scope {
        FeedScope::All => load_rows(db, after, horizon, limit).await?,
        FeedScope::Producer(owner) => load_rows_of(db, owner, after, horizon, limit).await?,
    };
    let next = match rows.last() {
        Some(last) if rows.len() >= limit as usize => last.cursor(),
        _ => FeedCursor { position: horizon, seq: 0 },
    };
    Ok(Some(FeedPage { events: read_events(db, rows).await?, next }))
}

/// Returns the steps, with the current contents of those orders that have any.
async fn read_events(db: &Pool, rows: Vec<FeedRow>) -> Result<Vec<StepEvent>, sqlx::Error> {
    let ids: Vec<&str> = rows.iter().filter(|row| row.has_details).map(|row| row.order_id.as_str()).collect();
    let contents = if ids.is_empty() { HashMap::new() } else { load_event_contents(db, &ids).await? };
    let to_event = |row: FeedRow| {
        // Several steps of the page may belong to one order.
        let contents = row.has_details.then(|| contents.get(&row.order_id).cloned().unwrap_or_default());
        let event = StepEvent::from(row);
        match contents {
            Some(contents) => StepEvent { data: event.data.with_contents(contents), ..event },
            None => event,
        }
    };
    Ok(rows.into_iter().map(to_event).collect())
}

/// Returns the position below which no row can be added.
pub(super) async fn load_horizon(db: impl PgExecutor<'_>) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(
        "-- horizon of feed
         SELECT dispatchq_feed_horizon()",
    )
    .fetch_one(db)
    .await
}

async fn load_rows(db: &Pool, after: FeedCursor, horizon: i64, limit: u32) -> Result<Vec<FeedRow>, sqlx::Error> {
    sqlx::query_as(
        "-- page of feed
         SELECT position, seq, order_id, kind, status, from_status, reason, attempt_no, driver_id, at, changed, has_details
         FROM order_feed f
         WHERE (f.position, f.seq) > ($1, $2) AND f.position < $3
         ORDER BY f.position, f.seq LIMIT $4",
    )
    .bind(after.position)
    .bind(after.seq)
    .bind(horizon)
    .bind(i64::from(limit))
    .fetch_all(db)
    .await
}

pub(super) async fn load_rows_of(
    db: impl PgExecutor<'_>,
    owner: &str,
    after: FeedCursor,
    horizon: i64,
    limit: u32,
) -> Result<Vec<FeedRow>, sqlx::Error> {
    sqlx::query_as(
        "-- page of a producer's feed
         SELECT position, seq, order_id, kind, status, from_status, reason, attempt_no, driver_id, at, changed, has_details
         FROM order_feed f
         WHERE f.owner = $1 AND (f.position, f.seq) > ($2, $3) AND f.position < $4
         ORDER BY f.position, f.seq LIMIT $5",
    )
    .bind(owner)
    .bind(after.position)
    .bind(after.seq)
    .bind(horizon)
    .bind(i64::from(limit))
    .fetch_all(db)
    .await
}

impl From<FeedRow> for StepEvent {
    fn from(row: FeedRow) -> Self {
        Self {
            step: row.kind,
            timestamp: row.at,
            version: STEP_VERSION,
            data: StepData {
                seq: row.seq,
                order_id: row.order_id,
                status: row.status,
                previous_status: row.from_status,
                reason: row.reason,
                attempt_no: row.attempt_no,
                driver_id: row.driver_id,
                changed: row.changed,
                pickup: None,
                dropoff: None,
                metadata: None,
            },
        }
    }
}

/// Number, kind, status and time of a creation's step, and whether the order has contents.
type CreationRow = (i64, String, OrderStatus, DateTime<Utc>, bool);

/// Returns the steps of the creation of an order in SQL for its producer. A scheduled order has two. Returns none if the
/// API created the order, because the creation has written its messages, or if the order is older than the feed.
pub async fn load_creation(db: impl PgExecutor<'_>, order: &OrderId) -> Result<Vec<StepBody>, sqlx::Error> {
    let rows: Vec<CreationRow> = sqlx::query_as(
        "-- creation in feed
         SELECT seq, kind, status, at, has_details FROM order_feed
         WHERE order_id = $1 AND kind IN ('order.created', 'order.scheduled') AND reason = 'ORDER_CREATED'
           AND EXISTS (SELECT 1 FROM orders o WHERE o.id = $1 AND o.creation_id IS NULL)
         ORDER BY seq LIMIT 2",
    )
    .bind(order.as_str())
    .fetch_all(db)
    .await?;
    let body = |(seq, kind, status, timestamp, has_contents): CreationRow| StepBody {
        event: if kind == OrderStep::Scheduled.as_str() { OrderStep::Scheduled } else { OrderStep::Created },
        version: STEP_VERSION,
        seq,
        order_id: order.clone(),
        status,
        previous_status: None,
        reason: EventReason::OrderCreated,
        attempt_no: None,
        driver_id: None,
        changed: Vec::new(),
        has_contents,
        timestamp,
    };
    Ok(rows.into_iter().map(body).collect())
}

/// Replaces a driver by a pseudonym in one page of the steps after `after`. Returns the last step of the page, or
/// `None` after the last step. The drivers of steps have no index: it would cost a write per step for a query that runs
/// once per driver. Pages keep transactions short, because a long one would delay the feed for its duration.
pub async fn erase_driver_in_page(
    db: impl PgExecutor<'_>,
    driver: &DriverId,
    pseudonym: &str,
    after: FeedCursor,
) -> Result<Option<FeedCursor>, sqlx::Error> {
    let last: Option<(i64, i64)> = sqlx::query_as(
        "-- erase driver from feed
         WITH page AS MATERIALIZED (
             SELECT position, seq, driver_id FROM order_feed
             WHERE (position, seq) > ($3, $4) ORDER BY position, seq LIMIT $5),
         erased AS (
             UPDATE order_feed f SET driver_id = $2 FROM page p
             WHERE p.driver_id = $1 AND f.position = p.position AND f.seq = p.seq)
         SELECT position, seq FROM page ORDER BY position DESC, seq DESC LIMIT 1",
    )
    .bind(driver)
    .bind(pseudonym)
    .bind(after.position)
    .bind(after.seq)
    .bind(ERASED_AT_ONCE)
    .fetch_optional(db)
    .await?;
    Ok(last.map(|(position, seq)| FeedCursor { position, seq }))
}
