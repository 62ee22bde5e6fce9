//! Finds out whether offers can still be accepted, many in one statement. Without Redis a hundred drivers may ask at
//! once. Also makes decisions on a live offer obsolete.

use std::collections::HashSet;

use jobs::OrderId;
use model::ids::{DriverId, OfferId};
use sqlx::PgExecutor;

use foundation::db::{Pool, copy_error};

/// An offer with the order and driver that the request names.
#[derive(Debug, Clone)]
pub(super) struct OfferQuery {
    pub(super) offer: OfferId,
    pub(super) order: OrderId,
    pub(super) driver: DriverId,
}

/// Returns whether each offer is live, in their order. An offer is not live if its driver has an active order, because
/// the accept would fail.
pub(super) async fn find_live(db: &Pool, queries: &[OfferQuery]) -> Vec<Result<bool, sqlx::Error>> {
    let live: Result<Vec<i64>, sqlx::Error> = sqlx::query_scalar(
        "-- offers are live
         SELECT q.n FROM unnest($1::uuid[], $2::text[], $3::text[]) WITH ORDINALITY AS q (offer_id, order_id, driver_id, n)
         JOIN offers f ON f.id = q.offer_id AND f.order_id = q.order_id AND f.driver_id = q.driver_id
             AND f.state || '' = 'offered'
         CROSS JOIN LATERAL (SELECT FROM orders o WHERE o.id = q.order_id AND o.status = 'DISPATCHING' OFFSET 0) o
         WHERE (SELECT count(*) FROM orders a WHERE a.driver_id = q.driver_id
                AND a.on_trip AND a.partner IS NULL) = 0",
    )
    .bind(queries.iter().map(|query| query.offer).collect::<Vec<_>>())
    .bind(queries.iter().map(|query| query.order.as_str()).collect::<Vec<_>>())
    .bind(queries.iter().map(|query| query.driver.as_str()).collect::<Vec<_>>())
    .fetch_all(db)
    .await;
    match live {
        Ok(live) => {
            let live: HashSet<i64> = live.into_iter().collect();
            (1..).take(queries.len()).map(|n| Ok(live.contains(&n))).collect()
        }
        Err(error) => queries.iter().map(|_| Err(copy_error(&error))).collect(),
    }
}

/// Outdates decisions that were made while the offer was live, by a new version of the order. Waits for a running
/// write; a later write is refused and must decide again. Does nothing if the offer has ended.
pub async fn outdate_decisions(db: impl PgExecutor<'_>, id: &OrderId, offer: OfferId) -> Result<(), sqlx::Error> {
    sqlx::query(
        "-- outdate decisions
         UPDATE orders SET version = version + 1
         WHERE id = $1 AND EXISTS (SELECT 1 FROM offers WHERE order_id = $1 AND id = $2 AND state || '' = 'offered')",
    )
    .bind(id.as_str())
    .bind(offer)
    .execute(db)
    .await
    .map(drop)
}
