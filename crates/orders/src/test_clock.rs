//! Test clock of `dispatchq dev`: lets time pass for one order. No other process uses it.
//!
//! Postgres is the source of truth, so the times in the row move, and the timers are derived from the row again. The
//! clocks stay. If the process dies in between, the reconciler finds the overdue row within seconds.

use chrono::TimeDelta;
use jobs::OrderId;
use model::{
    decide::test_clock::{ClockTarget, time_until_target},
    order::{Order, Snapshot},
};

use sqlx::PgExecutor;

use crate::{capability::Orders, change::ChangeError, order_store::load::load_order, timer_sending::enqueue_jobs};

/// Tries while other changes of the order are written first.
const MAX_CONFLICTS: usize = 5;

/// Lets time pass for an order until the target, and enqueues the timers that are due then. Does nothing if the target has
/// passed. An order that the caller may not see is not found.
pub async fn advance_order(
    orders: &Orders,
    id: &OrderId,
    target: ClockTarget,
    may_see: impl Fn(&Order) -> bool,
) -> Result<Snapshot, ChangeError> {
    let load = async || {
        let found = load_order(&orders.core.db, id).await?.filter(|s| may_see(&s.order));
        found.ok_or(ChangeError::NotFound)
    };
    for _ in 0..MAX_CONFLICTS {
        let s = load().await?;
        let passed = time_until_target(&s, target)?;
        if passed.is_zero() || move_times(&orders.core.db, id, s.order.version, passed).await? {
            orders.kept.forget(id);
            let after = load().await?;
            enqueue_jobs(orders, &after).await;
            return Ok(after);
        }
    }
    Err(ChangeError::Busy)
}

/// Moves the deadlines of an order, and of the offers of its running attempt, into the past by this time. Times of past
/// steps stay. Returns `false` if the row no longer has this version.
async fn move_times(
    db: impl PgExecutor<'_>,
    id: &OrderId,
    version: i64,
    passed: TimeDelta,
) -> Result<bool, sqlx::Error> {
    let moved: Option<String> = sqlx::query_scalar(include_str!("move_times.sql"))
        .bind(id.as_str())
        .bind(version)
        .bind(passed.num_milliseconds())
        .fetch_optional(db)
        .await?;
    Ok(moved.is_some())
}
