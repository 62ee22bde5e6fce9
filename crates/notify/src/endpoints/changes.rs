//! Changes of endpoints. Each change and its audit record are in one transaction. A trigger then increases the number
//! that makes every process read the subscriptions again.

use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;

use super::{Endpoint, EndpointError, EndpointId, EndpointOwner, EndpointSecret, EndpointState, MOST_ENDPOINTS};
use foundation::{
    config::address::without_password,
    db::{Connection, Pool},
    staff_actions::{ActionAuthor, ActionValues, StaffAction, record_action},
};

/// Time after which every step is written by a process that knows that an endpoint is active. A write uses subscriptions
/// of the last 3 s. Then it waits at most 5 s for a connection, and Postgres cancels its statement after 6 s by default.
pub const SETTLE: Duration = Duration::from_secs(15);

/// An endpoint to create. The caller has checked the values.
#[derive(Debug)]
pub struct NewEndpoint<'a> {
    pub producer: &'a str,
    pub url: &'a str,
    /// Empty: all events.
    pub events: Vec<String>,
}

/// Creates an endpoint. Returns it with its secret. Of concurrent creations for one producer, at most ten succeed.
pub async fn create_endpoint(
    db: &Pool,
    new: &NewEndpoint<'_>,
    by: ActionAuthor<'_>,
) -> Result<(Endpoint, EndpointSecret), EndpointError> {
    let (id, secret) = (EndpointId(Uuid::now_v7()), EndpointSecret::generate());
    let mut tx = db.begin().await?;
    lock_creations(&mut tx).await?;
    let made: Option<Endpoint> = sqlx::query_as(
        "-- create endpoint
         INSERT INTO webhook_endpoints (id, producer, url, events, secret)
         SELECT $1, $2, $3, $4, $5 WHERE (SELECT count(*) FROM webhook_endpoints WHERE producer = $2) < $6
         RETURNING id::text, producer, url, events, state, paused_after, created_at",
    )
    .bind(id)
    .bind(new.producer)
    .bind(new.url)
    .bind(&new.events)
    .bind(secret.expose())
    .bind(MOST_ENDPOINTS)
    .fetch_optional(&mut *tx)
    .await?;
    let made = made.ok_or(EndpointError::TooMany)?;
    record_action(&mut tx, by, StaffAction::EndpointCreated, &made.id, ActionValues::created(recorded(&made))).await?;
    tx.commit().await?;
    Ok((made, secret))
}

/// Makes other creations wait, so that each counts the endpoints of the one before.
async fn lock_creations(tx: &mut Connection) -> Result<(), sqlx::Error> {
    sqlx::query(
        "-- lock creations of endpoints
         SELECT number FROM webhook_revision FOR UPDATE",
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Returns an endpoint of this owner.
pub async fn find_endpoint(db: &Pool, id: EndpointId, owner: EndpointOwner<'_>) -> Result<Endpoint, EndpointError> {
    let found = sqlx::query_as(
        "-- find endpoint
         SELECT id::text, producer, url, events, state, paused_after, created_at
         FROM webhook_endpoints WHERE id = $1 AND ($2::text IS NULL OR producer = $2)",
    )
    .bind(id)
    .bind(owner.producer())
    .fetch_optional(db)
    .await?;
    found.ok_or(EndpointError::NotFound)
}

/// Locks an endpoint of this owner until the end of the transaction.
pub async fn lock_endpoint(
    tx: &mut Connection,
    id: EndpointId,
    owner: EndpointOwner<'_>,
) -> Result<Endpoint, EndpointError> {
    let found = sqlx::query_as(
        "-- lock endpoint
         SELECT id::text, producer, url, events, state, paused_after, created_at
         FROM webhook_endpoints WHERE id = $1 AND ($2::text IS NULL OR producer = $2) FOR UPDATE",
    )
    .bind(id)
    .bind(owner.producer())
    .fetch_optional(tx)
    .await?;
    found.ok_or(EndpointError::NotFound)
}

/// Pauses or resumes an endpoint. A pause stores the cursor of the feed, from which a replay can start. If the endpoint
/// has the state already, nothing changes.
pub async fn set_state(
    db: &Pool,
    id: EndpointId,
    owner: EndpointOwner<'_>,
    state: EndpointState,
    by: ActionAuthor<'_>,
) -> Result<Endpoint, EndpointError> {
    let mut tx = db.begin().await?;
    let before = lock_endpoint(&mut tx, id, owner).await?;
    if before.state == state {
        return Ok(before);
    }
    let after: Endpoint = sqlx::query_as(
        "-- set state of endpoint
         UPDATE webhook_endpoints
         SET state = $2, paused_after = CASE $2 WHEN 'paused' THEN dispatchq_feed_horizon() || '-0' ELSE paused_after END
         WHERE id = $1 RETURNING id::text, producer, url, events, state, paused_after, created_at",
    )
    .bind(id)
    .bind(state)
    .fetch_one(&mut *tx)
    .await?;
    if state == EndpointState::Active {
        postpone_replay(&mut tx, id).await?;
    }
    let action = match state {
        EndpointState::Active => StaffAction::EndpointResumed,
        EndpointState::Paused => StaffAction::EndpointPaused,
    };
    let values = ActionValues::changed(recorded(&before), recorded(&after));
    record_action(&mut tx, by, action, &after.id, values).await?;
    tx.commit().await?;
    Ok(after)
}

/// Makes a replay that has not started wait for [`SETTLE`].
async fn postpone_replay(tx: &mut Connection, id: EndpointId) -> Result<(), sqlx::Error> {
    sqlx::query(
        "-- postpone replay
         UPDATE webhook_replays SET next_step_at = greatest(next_step_at, dispatchq_now() + $2 * interval '1 second')
         WHERE endpoint_id = $1 AND until IS NULL",
    )
    .bind(id)
    .bind(SETTLE.as_secs_f64())
    .execute(tx)
    .await
    .map(drop)
}

/// Replaces the secret of an endpoint. The old secret also signs for `overlap`.
pub async fn rotate_secret(
    db: &Pool,
    id: EndpointId,
    owner: EndpointOwner<'_>,
    overlap: Duration,
    by: ActionAuthor<'_>,
) -> Result<(Endpoint, EndpointSecret), EndpointError> {
    let secret = EndpointSecret::generate();
    let mut tx = db.begin().await?;
    let endpoint = lock_endpoint(&mut tx, id, owner).await?;
    sqlx::query(
        "-- rotate secret of endpoint
         UPDATE webhook_endpoints SET secret_previous = secret, secret = $2,
                previous_until = dispatchq_now() + $3 * interval '1 second'
         WHERE id = $1",
    )
    .bind(id)
    .bind(secret.expose())
    .bind(overlap.as_secs_f64())
    .execute(&mut *tx)
    .await?;
    let values = ActionValues::created(json!({ "producer": endpoint.producer, "overlap_s": overlap.as_secs() }));
    record_action(&mut tx, by, StaffAction::EndpointRotated, &endpoint.id, values).await?;
    tx.commit().await?;
    Ok((endpoint, secret))
}

/// Deletes an endpoint and its replay. Messages that wait for it expire at their next try.
pub async fn delete_endpoint(
    db: &Pool,
    id: EndpointId,
    owner: EndpointOwner<'_>,
    by: ActionAuthor<'_>,
) -> Result<(), EndpointError> {
    let mut tx = db.begin().await?;
    let endpoint = lock_endpoint(&mut tx, id, owner).await?;
    sqlx::query(
        "-- delete endpoint
         DELETE FROM webhook_endpoints WHERE id = $1",
    )
    .bind(id)
    .execute(&mut *tx)
    .await?;
    let values = ActionValues::removed(recorded(&endpoint));
    record_action(&mut tx, by, StaffAction::EndpointDeleted, &endpoint.id, values).await?;
    tx.commit().await?;
    Ok(())
}

/// Returns the properties that an audit record stores. The path of the URL may be a secret and is left out.
fn recorded(endpoint: &Endpoint) -> Value {
    let Endpoint { producer, url, events, state, .. } = endpoint;
    json!({ "producer": producer, "url": without_password(url), "events": events, "state": state })
}
