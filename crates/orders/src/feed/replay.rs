//! Replays: earlier steps are sent to a webhook endpoint again. Design: docs/design/outbox-and-channels.md.
//!
//! A replay is a row. Each turn of a worker sends one page and moves the row's cursor in the same transaction, so a crash
//! repeats or skips nothing. A further request for the same endpoint moves the cursor back.
//!
//! The first step is [`SETTLE`] after the request. Later steps are then written by processes that know that the endpoint
//! is active, so each step is sent by its change or by the replay, which ends at the steps of that time.

use std::time::Duration;

use chrono::{DateTime, Utc};
use jobs::{OrderId, SendNotification};
use model::messages::{MESSAGE_EXPIRY, STEP_VERSION};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::read::{FeedCursor, FeedRow, load_horizon, load_rows_of};
use crate::capability::Orders;
use foundation::{
    crash,
    db::{self, Connection, Pool},
    error::ServiceError,
    staff_actions::{ActionAuthor, ActionValues, StaffAction, record_action},
};
use notify::endpoints::{
    EndpointError, EndpointId, EndpointOwner,
    changes::{SETTLE, lock_endpoint},
};
use queue::NewJob;

/// Steps that one turn reads.
const PAGE: u32 = 200;
/// A replay waits while this many messages of the endpoint are pending.
const MOST_PENDING: i64 = 1_000;
/// Pause of a replay whose endpoint has too many pending messages.
const PAUSE: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A due replay.
#[derive(Debug, sqlx::FromRow)]
struct DueReplay {
    endpoint_id: EndpointId,
    run: i64,
    position: i64,
    seq: i64,
    until: Option<i64>,
    producer: String,
    /// Types of events; empty: all.
    events: Vec<String>,
    is_crowded: bool,
}

/// Requests that the steps after a cursor are sent to an endpoint again, with its audit record.
pub async fn request_replay(
    db: &Pool,
    id: EndpointId,
    owner: EndpointOwner<'_>,
    after: FeedCursor,
    by: ActionAuthor<'_>,
) -> Result<(), EndpointError> {
    let mut tx = db.begin().await?;
    let endpoint = lock_endpoint(&mut tx, id, owner).await?;
    if after.position > load_horizon(&mut *tx).await? {
        return Err(EndpointError::AheadOfFeed);
    }
    sqlx::query(include_str!("request_replay.sql"))
        .bind(id)
        .bind(after.position)
        .bind(after.seq)
        .bind(SETTLE.as_secs_f64())
        .execute(&mut *tx)
        .await?;
    let values = ActionValues::created(json!({ "producer": endpoint.producer, "after": after.to_string() }));
    record_action(&mut tx, by, StaffAction::EndpointReplayed, &endpoint.id, values).await?;
    tx.commit().await?;
    Ok(())
}

/// Performs one step of each due replay. Returns whether any was due.
pub async fn run_replays(orders: &Orders) -> Result<bool, ServiceError> {
    let due: Vec<EndpointId> = sqlx::query_scalar(
        "-- due replays
         SELECT r.endpoint_id FROM webhook_replays r JOIN webhook_endpoints e ON e.id = r.endpoint_id
         WHERE r.next_step_at <= dispatchq_now() AND e.state = 'active' ORDER BY r.next_step_at LIMIT 100",
    )
    .fetch_all(&orders.core.db)
    .await?;
    for id in &due {
        let jobs = match run_step(&orders.core.db, *id).await {
            Ok(jobs) => jobs,
            Err(error) => {
                // One replay that fails does not stop the others.
                tracing::warn!(%error, endpoint.id = %id.0, "A replay failed; it continues later.");
                continue;
            }
        };
        crash::reach_point("replay", "committed");
        if let Err(error) = orders.core.queue().enqueue(&jobs).await {
            tracing::warn!(%error, "The messages of a replay could not be enqueued; the reconciler does it.");
        }
    }
    Ok(!due.is_empty())
}

/// Writes the messages of one page and moves the cursor. Returns the jobs that send the messages.
async fn run_step(db: &Pool, id: EndpointId) -> Result<Vec<NewJob>, ServiceError> {
    let mut tx = db.begin().await?;
    let due: Option<DueReplay> =
        sqlx::query_as(include_str!("lock_replay.sql")).bind(id).bind(MOST_PENDING).fetch_optional(&mut *tx).await?;
    let Some(replay) = due else { return Ok(Vec::new()) };
    let now = db::database_now(&mut *tx).await?;
    // An open transaction may still commit steps before this position, so the horizon may be below it.
    let until = match replay.until {
        Some(until) => until,
        None => load_position(&mut tx).await?,
    };
    let horizon = load_horizon(&mut *tx).await?;
    let mut jobs = Vec::new();
    if replay.is_crowded {
        replay.move_to(&mut tx, replay.cursor(), until, PAUSE).await?;
    } else {
        let rows = replay.load_page(&mut tx, until.min(horizon)).await?;
        jobs = replay.insert_messages(&mut tx, &rows, now).await?;
        crash::reach_point("replay", "inserted");
        let cursor = rows.last().map_or(replay.cursor(), FeedRow::cursor);
        if rows.len() >= PAGE as usize {
            replay.move_to(&mut tx, cursor, until, Duration::ZERO).await?;
        } else if horizon < until {
            replay.move_to(&mut tx, cursor, until, PAUSE).await?;
        } else {
            replay.end(&mut tx).await?;
        }
    }
    tx.commit().await?;
    Ok(jobs)
}

/// Returns the position of a step that this transaction writes. All earlier transactions have lower positions.
async fn load_position(db: &mut Connection) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(
        "-- position of feed
         SELECT dispatchq_feed_position()",
    )
    .fetch_one(db)
    .await
}

impl DueReplay {
    fn cursor(&self) -> FeedCursor {
        FeedCursor { position: self.position, seq: self.seq }
    }

    async fn load_page(&self, tx: &mut Connection, until: i64) -> Result<Vec<FeedRow>, sqlx::Error> {
        load_rows_of(tx, &self.producer, self.cursor(), until, PAGE).await
    }

    /// Inserts a message for each step that the endpoint subscribes to and whose order still exists. A step that was sent
    /// with its change keeps its message id. The id of any other step derives from the endpoint and the step, so that
    /// it is the same in each replay, although the cleanup removes the messages of replays.
    async fn insert_messages(
        &self,
        tx: &mut Connection,
        rows: &[FeedRow],
        now: DateTime<Utc>,
    ) -> Result<Vec<NewJob>, ServiceError> {
        let wanted = |row: &&FeedRow| self.events.is_empty() || self.events.contains(&row.kind);
        let rows: Vec<&FeedRow> = rows.iter().filter(wanted).collect();
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let inserted: Vec<(i64, String)> = sqlx::query_as(include_str!("insert_replayed.sql"))
            .bind(rows.iter().map(|row| self.message_id(row)).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.order_id.as_str()).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.kind.as_str()).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.seq.to_string()).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| to_payload(row)).collect::<Vec<_>>())
            .bind(self.endpoint_id.to_channel())
            .bind(self.run)
            .bind(now)
            .bind(now + MESSAGE_EXPIRY)
            .fetch_all(tx)
            .await?;
        inserted.into_iter().map(to_job).collect()
    }

    /// Returns the id of a replayed message, the same in each replay. After a restore, another step may have the number of
    /// a lost one, so the number alone does not identify a step.
    fn message_id(&self, row: &FeedRow) -> Uuid {
        let step = format!("{} {} {} {}", row.seq, row.order_id, row.kind, row.at.timestamp_micros());
        Uuid::new_v5(&self.endpoint_id.0, step.as_bytes())
    }

    async fn move_to(
        &self,
        tx: &mut Connection,
        cursor: FeedCursor,
        until: i64,
        pause: Duration,
    ) -> Result<(), sqlx::Error> {
        sqlx::query(
            "-- move replay
             UPDATE webhook_replays SET position = $2, seq = $3, until = $4,
                    next_step_at = dispatchq_now() + $5 * interval '1 second'
             WHERE endpoint_id = $1",
        )
        .bind(self.endpoint_id)
        .bind(cursor.position)
        .bind(cursor.seq)
        .bind(until)
        .bind(pause.as_secs_f64())
        .execute(tx)
        .await
        .map(drop)
    }

    async fn end(&self, tx: &mut Connection) -> Result<(), sqlx::Error> {
        sqlx::query(
            "-- end replay
             DELETE FROM webhook_replays WHERE endpoint_id = $1",
        )
        .bind(self.endpoint_id)
        .execute(tx)
        .await
        .map(drop)
    }
}

/// Returns the job that sends a message about an order.
fn to_job((outbox_id, order): (i64, String)) -> Result<NewJob, ServiceError> {
    let order = order.parse::<OrderId>().map_err(|error| ServiceError::Incomplete(error.to_string()))?;
    Ok(NewJob::now(&SendNotification { subject: order.into(), outbox_id }))
}

/// Returns the payload of a step, as [`StepBody`](model::messages::body::StepBody) writes it.
fn to_payload(row: &FeedRow) -> Value {
    let mut payload = json!({
        "event": row.kind, "version": STEP_VERSION, "seq": row.seq, "order_id": row.order_id, "status": row.status,
        "previous_status": row.from_status, "reason": row.reason, "attempt_no": row.attempt_no,
        "driver_id": row.driver_id, "timestamp": row.at,
    });
    if let Some(changed) = row.changed.as_ref().filter(|changed| !changed.is_empty()) {
        payload["changed"] = json!(changed);
    }
    if row.has_details {
        payload["has_contents"] = json!(true);
    }
    payload
}

/// Runs replays until `stop` is cancelled.
pub async fn keep_replaying(orders: Orders, stop: CancellationToken) {
    let turns = orders.core.loops.register_loop("replays to endpoints");
    let mut failing = false;
    while !stop.is_cancelled() {
        match turns.run_turn(run_replays(&orders)).await {
            Some(Err(error)) if !failing => {
                tracing::warn!(%error, "Replays to webhook endpoints failed; they continue later.");
                failing = true;
            }
            Some(Ok(_)) => failing = false,
            Some(Err(_)) | None => {}
        }
        stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await;
    }
}
