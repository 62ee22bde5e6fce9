//! Desk claims: show which staff member handles an order that waits for a person, so that no two people call the same
//! customer. Desk claims are advisory: any dispatcher can still decide on the order or take it over. A claim expires
//! after [`TAKE_LASTS`]. Design: docs/design/desk.md.

use std::time::Duration;

use chrono::{DateTime, Utc};
use jobs::OrderId;
use model::{order::Snapshot, ranking::DriverRanking};
use serde_json::json;
use sqlx::PgExecutor;

use crate::capability::Desk;
use foundation::{
    db::Pool,
    staff_actions::{ActionAuthor, ActionValues, StaffAction, record_action},
};
use orders::fleet::{candidate_search::CandidateSearch, candidates};

/// Duration of a desk claim. Claiming the order again restarts it.
pub const TAKE_LASTS: Duration = Duration::from_secs(600);

/// Reason that an order was not claimed or released.
#[derive(Debug, thiserror::Error)]
pub enum TakeError {
    #[error("the order does not wait for a person")]
    NotWaiting,
    #[error("you do not handle this order")]
    NotYours,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// A desk claim.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct OrderTake {
    pub order_id: String,
    /// Name of the person in the history, such as `dispatcher:anna`.
    pub taken_by: String,
    pub ends_at: DateTime<Utc>,
}

/// Claims an order for this person and records the action. The order must be PENDING, under review, or on an overdue
/// trip. A claim by another person is replaced; a repeated claim restarts its duration. A finished trip is not overdue,
/// even if its alert is still open.
pub async fn take_order(db: &Pool, id: &OrderId, by: ActionAuthor<'_>) -> Result<OrderTake, TakeError> {
    let mut tx = db.begin().await?;
    let before = list_takes(&mut *tx, &[id.as_str()]).await?.into_iter().next();
    let take: Option<OrderTake> = sqlx::query_as(
        "-- take order
         INSERT INTO desk_takes (order_id, taken_by, ends_at)
         SELECT id, $2, dispatchq_now() + $3 * interval '1 second' FROM orders
         WHERE id = $1 AND (status = 'PENDING' OR held_for_review OR status IN ('DRIVER_ASSIGNED', 'PICKED_UP') AND EXISTS (
             SELECT 1 FROM alerts a WHERE a.order_id = $1 AND a.kind = 'STALE_TRIP' AND a.acked_at IS NULL))
         ON CONFLICT (order_id) DO UPDATE SET taken_by = excluded.taken_by, ends_at = excluded.ends_at
         RETURNING order_id, taken_by, ends_at",
    )
    .bind(id.as_str())
    .bind(by.actor.to_string())
    .bind(TAKE_LASTS.as_secs().cast_signed())
    .fetch_optional(&mut *tx)
    .await?;
    let take = take.ok_or(TakeError::NotWaiting)?;
    record_action(&mut tx, by, StaffAction::OrderTaken, id.as_str(), recorded_takes(before.as_ref(), Some(&take)))
        .await?;
    tx.commit().await?;
    Ok(take)
}

/// Removes the person's claim on the order and records the action.
pub async fn leave_order(db: &Pool, id: &OrderId, by: ActionAuthor<'_>) -> Result<(), TakeError> {
    let mut tx = db.begin().await?;
    let left: Option<OrderTake> = sqlx::query_as(
        "-- leave order
         DELETE FROM desk_takes WHERE order_id = $1 AND taken_by = $2 AND ends_at > dispatchq_now()
         RETURNING order_id, taken_by, ends_at",
    )
    .bind(id.as_str())
    .bind(by.actor.to_string())
    .fetch_optional(&mut *tx)
    .await?;
    let left = left.ok_or(TakeError::NotYours)?;
    record_action(&mut tx, by, StaffAction::OrderLeft, id.as_str(), recorded_takes(Some(&left), None)).await?;
    Ok(tx.commit().await?)
}

fn recorded_takes(old: Option<&OrderTake>, new: Option<&OrderTake>) -> ActionValues {
    let recorded = |take: &OrderTake| json!({ "taken_by": take.taken_by, "ends_at": take.ends_at });
    ActionValues { old: old.map(recorded), new: new.map(recorded) }
}

/// Returns the present claims on these orders.
pub async fn list_takes(db: impl PgExecutor<'_>, orders: &[&str]) -> Result<Vec<OrderTake>, sqlx::Error> {
    if orders.is_empty() {
        return Ok(Vec::new());
    }
    sqlx::query_as(
        "-- takes of orders
         SELECT order_id, taken_by, ends_at FROM desk_takes WHERE order_id = ANY ($1) AND ends_at > dispatchq_now()",
    )
    .bind(orders)
    .fetch_all(db)
    .await
}

/// Ranks the drivers near the pickup as a search would now, without sending offers.
pub async fn rank_now(desk: &Desk, s: &Snapshot) -> Result<DriverRanking, sqlx::Error> {
    // The search uses the connections of pages, so that it cannot slow down changes of orders.
    let search = CandidateSearch::new(&desk.core.db);
    let policy = desk.areas.policy_for_order(&s.order);
    let ranking = candidates::rank_drivers(&desk.core, &search, s, &policy).await?;
    Ok(ranking.explanation_excerpt())
}
