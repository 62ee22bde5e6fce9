//! Reads the next steps of the feed.

use chrono::{DateTime, Utc};

use super::{place::ProofPlace, scope::SliceScope};
use foundation::db::Pool;

/// Steps of one slice. More steps of one order cost one check.
const STEPS: i64 = 5000;

/// A step of the feed.
#[derive(sqlx::FromRow)]
struct FeedStep {
    position: i64,
    seq: i64,
    order_id: String,
    at: DateTime<Utc>,
}

/// Result of [`read_steps`].
#[derive(Debug)]
pub(super) struct ReadSteps {
    pub steps: i64,
    /// Whether the fold has reached the horizon.
    pub is_current: bool,
}

/// Adds the orders of the next steps to the scope, and moves the place after these steps. The horizon is read first,
/// so every step below it is visible to the second statement.
pub(super) async fn read_steps(
    db: &Pool,
    place: &mut ProofPlace,
    scope: &mut SliceScope,
) -> Result<ReadSteps, sqlx::Error> {
    let (horizon, now): (i64, DateTime<Utc>) = sqlx::query_as(
        "-- horizon of proof
         SELECT dispatchq_feed_horizon(), dispatchq_now()",
    )
    .fetch_one(db)
    .await?;
    if place.position > horizon {
        place.restart();
    }
    let steps: Vec<FeedStep> = sqlx::query_as(
        "-- steps to prove
         SELECT position, seq, order_id, at FROM order_feed
         WHERE (position, seq) > ($1, $2) AND position < $3 ORDER BY position, seq LIMIT $4",
    )
    .bind(place.position)
    .bind(place.seq)
    .bind(horizon)
    .bind(STEPS)
    .fetch_all(db)
    .await?;
    let count = i64::try_from(steps.len()).unwrap_or(i64::MAX);
    let is_current = count < STEPS;
    place.event = steps.iter().map(|step| step.seq).fold(place.event, i64::max);
    match steps.last() {
        Some(last) if !is_current => {
            (place.position, place.seq, place.proven_at) = (last.position, last.seq, last.at);
        }
        _ => (place.position, place.seq, place.proven_at) = (horizon, 0, now),
    }
    scope.orders.extend(steps.into_iter().map(|step| step.order_id));
    Ok(ReadSteps { steps: count, is_current })
}
