//! Scope of a slice: the orders of new steps, the rows of the walk, and the subjects of open violations.

use std::collections::BTreeSet;

use super::violations::OpenViolation;
use foundation::db::Pool;

/// Rows that a slice checks.
#[derive(Debug, Clone, Default)]
pub struct SliceScope {
    pub orders: BTreeSet<String>,
    pub bindings: BTreeSet<String>,
    /// Active orders of drivers with more than one. An invariant compares them, so one statement checks all of them.
    pub rivals: BTreeSet<String>,
    /// Messages about bindings, which have no order.
    pub messages: Vec<i64>,
    /// Drivers with an open violation.
    pub drivers: BTreeSet<String>,
    /// Open violations whose subjects are checked again.
    pub again: Vec<OpenViolation>,
}

/// Adds the active orders of drivers that have more than one.
pub(super) async fn add_rivals(db: &Pool, scope: &mut SliceScope) -> Result<(), sqlx::Error> {
    let orders: Vec<String> = sqlx::query_scalar(include_str!("orders_of_drivers.sql"))
        .bind(scope.orders.iter().map(String::as_str).collect::<Vec<_>>())
        .bind(scope.drivers.iter().map(String::as_str).collect::<Vec<_>>())
        .fetch_all(db)
        .await?;
    scope.rivals.extend(orders);
    Ok(())
}

/// Adds all orders, bindings and messages.
pub(super) async fn add_everything(db: &Pool, scope: &mut SliceScope) -> Result<(), sqlx::Error> {
    let orders = sqlx::query_scalar(
        "-- all orders to prove
         SELECT id FROM orders UNION SELECT order_id FROM audit_events
         UNION SELECT order_id FROM outbox WHERE binding_id IS NULL",
    );
    scope.orders.extend::<Vec<String>>(orders.fetch_all(db).await?);
    let bindings = sqlx::query_scalar(
        "-- all bindings to prove
         SELECT id FROM bindings UNION SELECT binding_id FROM transactions",
    );
    scope.bindings.extend::<Vec<String>>(bindings.fetch_all(db).await?);
    let messages = sqlx::query_scalar(
        "-- all messages of bindings to prove
         SELECT id FROM outbox WHERE binding_id IS NOT NULL",
    );
    scope.messages.extend::<Vec<i64>>(messages.fetch_all(db).await?);
    Ok(())
}
