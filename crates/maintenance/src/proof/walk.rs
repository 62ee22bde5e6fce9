//! Checks rows whose order or binding has no new step. A person who changes such a row by SQL adds no step, so each
//! slice also checks a page of each table. A round over a few thousand open orders takes less than a minute. With more
//! orders a round takes longer, because the size of the pages limits the cost of a slice.

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use sqlx::FromRow;

use super::{
    invariants::{OF_LATEST_CALLS, is_of_bindings},
    redis_samples::{self, SamplePlace},
    scope::SliceScope,
    violations::{self, OpenViolation},
};
use foundation::db::Pool;

/// Maximum number of open orders in one slice.
const OPEN_ORDERS: i64 = 1000;
/// Maximum number of rows of each other table in one slice.
const ROWS: i64 = 500;
/// Maximum number of open violations whose subjects one slice checks again.
const VIOLATIONS: i64 = 100;
/// Maximum age of closed orders that are checked. `check history` checks all of them.
const ORDER_AGE: TimeDelta = TimeDelta::days(7);
/// Maximum age of events whose orders are checked. Finds events whose order does not exist.
const EVENT_AGE: TimeDelta = TimeDelta::days(1);
/// Number of messages that are checked, newest first.
const MESSAGES: i64 = 50_000;
/// Maximum number of calls of a binding that is checked here, because a check reads all of them. `check history`
/// checks the others.
const MOST_CALLS: i64 = 50_000;

/// Position in each table. Each position is before the first row at the start and after a whole round.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WalkPlace {
    open_orders: String,
    recent_orders: (DateTime<Utc>, String),
    events: String,
    messages: i64,
    bindings: String,
    transactions: (DateTime<Utc>, String),
    violations: i64,
    pub redis: SamplePlace,
}

impl WalkPlace {
    /// Adds the next page of each table to the scope, and moves the position after it.
    pub(super) async fn add_next_pages(
        &mut self,
        db: &Pool,
        scope: &mut SliceScope,
        now: DateTime<Utc>,
    ) -> Result<(), sqlx::Error> {
        self.add_orders(db, scope, now).await?;
        self.add_messages(db, scope).await?;
        self.add_bindings(db, scope).await?;
        let open = violations::list_open_after(db, self.violations, VIOLATIONS).await?;
        self.violations = next_place(&open, VIOLATIONS, |last| last.id);
        open.into_iter().for_each(|violation| add_subject(violation, scope));
        Ok(())
    }

    async fn add_orders(&mut self, db: &Pool, scope: &mut SliceScope, now: DateTime<Utc>) -> Result<(), sqlx::Error> {
        let open = sqlx::query_as(
            "-- open orders to walk
             SELECT id FROM orders WHERE closed_at IS NULL AND id > $1 ORDER BY id LIMIT $2",
        );
        let open: Vec<(String,)> = open.bind(&self.open_orders).bind(OPEN_ORDERS).fetch_all(db).await?;
        self.open_orders = next_place(&open, OPEN_ORDERS, |last| last.0.clone());
        let (at, id) = &self.recent_orders;
        let recent = sqlx::query_as(
            "-- recent orders to walk
             SELECT created_at, id FROM orders WHERE (created_at, id) > ($1, $2) ORDER BY created_at, id LIMIT $3",
        );
        let recent: Vec<(DateTime<Utc>, String)> =
            recent.bind((*at).max(now - ORDER_AGE)).bind(id).bind(ROWS).fetch_all(db).await?;
        self.recent_orders = next_place(&recent, ROWS, Clone::clone);
        let changed = sqlx::query_as(
            "-- recent events to walk
             SELECT DISTINCT order_id FROM order_events WHERE order_id > $1 AND at >= $2 ORDER BY order_id LIMIT $3",
        )
        .persistent(false);
        let changed: Vec<(String,)> = changed.bind(&self.events).bind(now - EVENT_AGE).bind(ROWS).fetch_all(db).await?;
        self.events = next_place(&changed, ROWS, |last| last.0.clone());
        scope.orders.extend(open.into_iter().chain(changed).map(|(id,)| id));
        scope.orders.extend(recent.into_iter().map(|(_, id)| id));
        Ok(())
    }

    async fn add_messages(&mut self, db: &Pool, scope: &mut SliceScope) -> Result<(), sqlx::Error> {
        let messages: Vec<(i64, String, bool)> = sqlx::query_as(
            "-- messages to walk
             SELECT id, order_id, binding_id IS NOT NULL FROM outbox
             WHERE id > greatest($1, (SELECT max(id) FROM outbox) - $2) ORDER BY id LIMIT $3",
        )
        .bind(self.messages)
        .bind(MESSAGES)
        .bind(ROWS)
        .fetch_all(db)
        .await?;
        self.messages = next_place(&messages, ROWS, |last| last.0);
        for (id, order, is_of_binding) in messages {
            if is_of_binding {
                scope.messages.push(id);
            } else {
                scope.orders.insert(order);
            }
        }
        Ok(())
    }

    async fn add_bindings(&mut self, db: &Pool, scope: &mut SliceScope) -> Result<(), sqlx::Error> {
        let bindings: Vec<(String, bool)> = sqlx::query_as(
            "-- bindings to walk
             SELECT binding_id, call_no - calls_removed <= $3 FROM audit_bindings
             WHERE binding_id > $1 ORDER BY binding_id LIMIT $2",
        )
        .bind(&self.bindings)
        .bind(ROWS)
        .bind(MOST_CALLS)
        .fetch_all(db)
        .await?;
        self.bindings = next_place(&bindings, ROWS, |last| last.0.clone());
        let (at, id) = &self.transactions;
        // The binding of a transaction may not exist.
        let transactions: Vec<WalkedTransaction> = sqlx::query_as(
            "-- transactions to walk
             SELECT t.started_at, t.trx_id, t.binding_id, b.call_no IS NULL AS is_orphan
             FROM transactions t LEFT JOIN bindings b ON b.id = t.binding_id
             WHERE (t.started_at, t.trx_id) > ($1, $2) ORDER BY t.started_at, t.trx_id LIMIT $3",
        )
        .bind(at)
        .bind(id)
        .bind(ROWS)
        .fetch_all(db)
        .await?;
        self.transactions = next_place(&transactions, ROWS, |last| (last.started_at, last.trx_id.clone()));
        scope.bindings.extend(bindings.into_iter().filter(|(_, is_small)| *is_small).map(|(id, _)| id));
        scope.bindings.extend(transactions.into_iter().filter(|row| row.is_orphan).map(|row| row.binding_id));
        Ok(())
    }
}

#[derive(FromRow)]
struct WalkedTransaction {
    started_at: DateTime<Utc>,
    trx_id: String,
    binding_id: String,
    is_orphan: bool,
}

/// Adds the subject of an open violation, so that it is checked again. Violations in Redis and of call limits are closed by
/// the round that no longer finds them.
fn add_subject(violation: OpenViolation, scope: &mut SliceScope) {
    let subject = violation.subject.clone();
    let name = violation.invariant.as_str();
    let is_checked = name != OF_LATEST_CALLS && name != violations::REMOVED.0 && !redis_samples::NAMES.contains(&name);
    if !is_checked {
        return;
    }
    let subjects = match name {
        "one_active_order_per_driver" => &mut scope.drivers,
        name if is_of_bindings(name) => &mut scope.bindings,
        _ => &mut scope.orders,
    };
    subjects.insert(subject);
    scope.again.push(violation);
}

/// Returns the position after the last row of a page. A page that is not full ends a round, so the next page starts
/// again.
fn next_place<T, P: Default>(page: &[T], size: i64, place: impl Fn(&T) -> P) -> P {
    let is_full = page.len() as u64 >= size.unsigned_abs();
    page.last().filter(|_| is_full).map(place).unwrap_or_default()
}
