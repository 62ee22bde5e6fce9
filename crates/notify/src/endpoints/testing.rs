//! The event `endpoint.test`. It is an outbox message, so it is signed, retried and listed like any other event.

use chrono::{DateTime, TimeDelta, Utc};
use jobs::SendNotification;
use model::messages::{ENDPOINT_ORDER, ENDPOINT_TEST, STEP_VERSION};
use serde_json::json;
use uuid::Uuid;

use super::{Endpoint, EndpointError, EndpointId, EndpointOwner, changes::lock_endpoint};
use foundation::{
    db::{self, Connection, Pool},
    staff_actions::{ActionAuthor, ActionValues, StaffAction, record_action},
};
use queue::NewJob;

/// Time after which a test is given up. Shorter than that of events, so that a test of a paused or wrong endpoint does not
/// look like an old backlog.
const TEST_EXPIRY: TimeDelta = TimeDelta::minutes(5);

/// A written test event.
#[derive(Debug)]
pub struct TestEvent {
    /// Id of the event, which the receiver sees.
    pub message_id: Uuid,
    /// Job that sends it. If it is not enqueued, the reconciler does so.
    pub job: NewJob,
}

/// Writes a test event for an endpoint, with its audit record.
pub async fn write_test(
    db: &Pool,
    id: EndpointId,
    owner: EndpointOwner<'_>,
    by: ActionAuthor<'_>,
) -> Result<TestEvent, EndpointError> {
    let mut tx = db.begin().await?;
    let endpoint = lock_endpoint(&mut tx, id, owner).await?;
    let now = db::database_now(&mut *tx).await?;
    let event = insert_test(&mut tx, id, &endpoint, now).await?;
    let values = ActionValues::created(json!({ "producer": endpoint.producer, "event": event.message_id }));
    record_action(&mut tx, by, StaffAction::EndpointTested, &endpoint.id, values).await?;
    tx.commit().await?;
    Ok(event)
}

async fn insert_test(
    tx: &mut Connection,
    id: EndpointId,
    endpoint: &Endpoint,
    now: DateTime<Utc>,
) -> Result<TestEvent, EndpointError> {
    let message_id = Uuid::now_v7();
    let payload = json!({
        "event": ENDPOINT_TEST, "timestamp": now, "version": STEP_VERSION,
        "endpoint_id": endpoint.id, "producer": endpoint.producer,
    });
    let outbox_id: i64 = sqlx::query_scalar(
        "-- insert test of endpoint
         INSERT INTO outbox (message_id, order_id, kind, channel, dedupe_key, payload, next_attempt_at, expires_at, created_at)
         VALUES ($1::uuid, $2, $3, $4, $1::uuid::text, $5, $6, $7, $6) RETURNING id",
    )
    .bind(message_id)
    .bind(ENDPOINT_ORDER)
    .bind(ENDPOINT_TEST)
    .bind(id.to_channel())
    .bind(payload)
    .bind(now)
    .bind(now + TEST_EXPIRY)
    .fetch_one(tx)
    .await?;
    let subject = ENDPOINT_ORDER.parse::<jobs::OrderId>().map_err(|error| sqlx::Error::Decode(error.into()))?;
    let job = NewJob::now(&SendNotification { subject: subject.into(), outbox_id });
    Ok(TestEvent { message_id, job })
}
