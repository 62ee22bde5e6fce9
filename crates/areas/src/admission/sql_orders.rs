//! Adds orders that were created in SQL to the waiting sets in Redis.
//!
//! Postgres counts these orders as soon as they are committed, so the threshold is kept. The check reads Redis, so a
//! worker adds the orders there. If the worker dies in between, or Redis is unavailable, the reconciler adds them
//! within a minute. An order that finds its driver at the same time may be counted for too long, until the reconciler
//! has compared the sets twice.

use std::{collections::BTreeMap, time::Duration};

use chrono::{DateTime, Utc};
use model::ids::{AreaId, ServiceType};
use redis::cmd;
use tokio_util::sync::CancellationToken;

use crate::capability::Areas;
use foundation::{error::ServiceError, redis_keys};

const LOOK_EVERY: Duration = Duration::from_millis(400);
/// Maximum orders added in one turn.
const AT_ONCE: i64 = 1_000;

#[derive(sqlx::FromRow)]
struct UncountedOrder {
    id: String,
    area_id: AreaId,
    service_type: ServiceType,
    waits_since: DateTime<Utc>,
    lifetime_deadline: DateTime<Utc>,
}

/// Adds orders that were created in SQL to the waiting sets. Returns their number.
pub async fn count_new_orders(areas: &Areas) -> Result<usize, ServiceError> {
    let mut tx = areas.core.db.begin().await?;
    let orders: Vec<UncountedOrder> = sqlx::query_as(
        "-- take uncounted orders
         WITH taken AS (
             DELETE FROM uncounted_orders
             WHERE order_id IN (SELECT order_id FROM uncounted_orders ORDER BY order_id LIMIT $1 FOR UPDATE SKIP LOCKED)
             RETURNING order_id)
         SELECT o.id, o.area_id, o.service_type, coalesce(o.starts_at, o.created_at) AS waits_since,
                o.lifetime_deadline
         FROM taken t JOIN orders o ON o.id = t.order_id
         WHERE o.status IN ('PENDING_JOB_ID', 'ASSIGNED', 'DISPATCHING', 'PENDING') AND o.area_id IS NOT NULL
           AND o.lifetime_deadline > dispatchq_now()",
    )
    .bind(AT_ONCE)
    .fetch_all(&mut *tx)
    .await?;
    let rules = areas.rules.get();
    let mut by_set: BTreeMap<String, Vec<&UncountedOrder>> = BTreeMap::new();
    for order in &orders {
        by_set.entry(redis_keys::waiting_orders(&order.area_id, &order.service_type)).or_default().push(order);
    }
    for (key, waiting) in by_set {
        let mut add = cmd("ZADD");
        add.arg(key).arg("NX");
        for order in waiting {
            let limits = rules.limits_for(&order.area_id, &order.service_type);
            let counted_until = limits.counted_until(order.waits_since, order.lifetime_deadline);
            add.arg(counted_until.timestamp_millis()).arg(order.id.as_str());
        }
        areas.core.query_optional::<i64>("count orders", &add).await.map_err(ServiceError::Incomplete)?;
    }
    // The commit comes last, so that the orders are read again if Redis fails.
    tx.commit().await?;
    Ok(orders.len())
}

/// Adds orders to the waiting sets until `stop` is cancelled.
pub async fn keep_counting(areas: Areas, stop: CancellationToken) {
    let turns = areas.core.loops.register_loop("orders of SQL");
    let mut failing = false;
    while !stop.is_cancelled() {
        let counted = turns.run_turn(count_new_orders(&areas)).await;
        match counted {
            Some(Err(error)) if !failing => {
                tracing::warn!(%error, "Orders created in SQL could not be added in Redis; the reconciler adds them.");
                failing = true;
            }
            Some(Ok(_)) => failing = false,
            Some(Err(_)) | None => {}
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}
