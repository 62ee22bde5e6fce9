//! Reads for people: timelines, offers, orders of a job id.

use chrono::{DateTime, TimeDelta, Utc};
use jobs::OrderId;
use model::actor::{Actor, ActorRole};
use serde::Serialize;

use foundation::db::{Connection, Pool};
use model::order::{Offer, Order, OrderStatus};

/// Returns the orders that have or had this partner's job id in any attempt, the newest first, at most 10.
pub async fn with_job_id(db: &Pool, job_id: &str) -> Result<Vec<OrderId>, sqlx::Error> {
    let ids: Vec<String> = sqlx::query_scalar(
        "-- orders with job id
         SELECT id FROM orders
         WHERE id IN (SELECT id FROM orders WHERE job_id = $1 UNION SELECT order_id FROM bookings WHERE job_id = $1)
         ORDER BY created_at DESC LIMIT 10",
    )
    .bind(job_id)
    .fetch_all(db)
    .await?;
    Ok(ids.into_iter().filter_map(|id| id.parse().ok()).collect())
}

/// Returns the latest 100 offers of an order, the oldest first.
pub async fn list_offers(db: &Pool, order: &OrderId) -> Result<Vec<Offer>, sqlx::Error> {
    sqlx::query_as(
        "-- offers of order
         SELECT * FROM (SELECT id, attempt_no, wave, round, driver_id, state, offered_at, expires_at, rank FROM offers
                        WHERE order_id = $1 ORDER BY attempt_no DESC, rank DESC LIMIT 100) latest
         ORDER BY attempt_no, offered_at, rank",
    )
    .bind(order.as_str())
    .fetch_all(db)
    .await
}

/// Entry in an order's history.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema, sqlx::FromRow)]
pub struct TimelineEvent {
    pub seq: i64,
    pub at: DateTime<Utc>,
    pub from_status: Option<OrderStatus>,
    pub to_status: OrderStatus,
    pub reason: String,
    pub actor: String,
    pub attempt_no: Option<i32>,
    pub detail: Option<String>,
}

impl TimelineEvent {
    /// Returns the event as this caller may see it. For drivers and producers, events of other people contain no names
    /// and no free text. A producer also sees the details that programs write.
    pub fn as_seen_by(self, reader: &Actor) -> Self {
        let actor = Actor::parse(&self.actor);
        let is_hidden = match reader.role {
            ActorRole::Driver => !is_same(&actor, reader),
            ActorRole::Producer => !is_same(&actor, reader) && !is_program(actor.role),
            _ => false,
        };
        if !is_hidden {
            return self;
        }
        Self { actor: actor.role.role_group().to_owned(), detail: None, ..self }
    }
}

fn is_same(actor: &Actor, reader: &Actor) -> bool {
    (actor.role, &actor.name) == (reader.role, &reader.name)
}

/// Returns whether the details of this actor's events are written by a program.
fn is_program(role: ActorRole) -> bool {
    matches!(role, ActorRole::System | ActorRole::Reconciler | ActorRole::Partner)
}

/// Maximum distance of an event from its order's creation or last change, if the clock was set back in between.
const CLOCK_SET_BACK: TimeDelta = TimeDelta::days(1);

/// Returns the history of an order, the oldest event first. Reads and locks only the days on which the order was open.
/// Each day is a partition, and a year of them would fill a large part of the server's lock table for one timeline.
pub async fn load_timeline(db: &Pool, order: &OrderId) -> Result<Vec<TimelineEvent>, sqlx::Error> {
    load_timeline_on(&mut db.acquire().await?, order).await
}

/// Returns the history like [`load_timeline`], on this connection.
pub async fn load_timeline_on(db: &mut Connection, order: &OrderId) -> Result<Vec<TimelineEvent>, sqlx::Error> {
    let lived: Option<(DateTime<Utc>, DateTime<Utc>)> = sqlx::query_as(
        "-- when an order lived
         SELECT created_at, updated_at FROM orders WHERE id = $1",
    )
    .bind(order.as_str())
    .fetch_optional(&mut *db)
    .await?;
    let Some(lived) = lived else { return Ok(Vec::new()) };
    load_events(db, order, lived).await
}

/// Returns the history of a loaded order, up to its latest change at the time of the load.
pub async fn load_timeline_of(db: &Pool, order: &Order) -> Result<Vec<TimelineEvent>, sqlx::Error> {
    load_events(&mut db.acquire().await?, &order.id, (order.created_at, order.updated_at)).await
}

/// Returns the events between the two times. Every event is written with its order and has the time of that change.
async fn load_events(
    db: &mut Connection,
    order: &OrderId,
    (created_at, updated_at): (DateTime<Utc>, DateTime<Utc>),
) -> Result<Vec<TimelineEvent>, sqlx::Error> {
    sqlx::query_as(
        "-- timeline
         SELECT seq, at, from_status, to_status, reason, actor, attempt_no, detail
         FROM order_events WHERE order_id = $1 AND at >= $2 AND at <= $3
         UNION ALL
         SELECT seq, at, from_status, to_status, reason, actor, attempt_no, detail
         FROM order_events_kept WHERE order_id = $1
         ORDER BY seq",
    )
    // A generic plan would lock every partition.
    .persistent(false)
    .bind(order.as_str())
    .bind(created_at - CLOCK_SET_BACK)
    .bind(updated_at + CLOCK_SET_BACK)
    .fetch_all(db)
    .await
}
