//! The filter of staff scopes. Postgres limits reads to a scope too: migrations/0013_audit_views_and_rights.sql.

use std::collections::HashSet;

use model::{order::Order, scope::Scope};

use foundation::db::Pool;

/// Returns those of the orders that the scope contains. Each read and each action of staff with a scope asks this
/// function. Ids without an order are left out.
pub async fn list_visible(db: &Pool, scope: &Scope, ids: &[&str]) -> Result<HashSet<String>, sqlx::Error> {
    if ids.is_empty() {
        return Ok(HashSet::new());
    }
    let orders: Vec<Order> = sqlx::query_as(
        "-- orders to check against a scope
         SELECT * FROM orders WHERE id = ANY ($1)",
    )
    .bind(ids)
    .fetch_all(db)
    .await?;
    let visible = orders.into_iter().filter(|order| scope.contains(order));
    Ok(visible.map(|order| order.id.to_string()).collect())
}
