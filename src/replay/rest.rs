//! Is everything settled?
//!
//! At rest every order is final, was driven to its end, or is held for a person, and no message waits to be delivered.

use std::time::Duration;

use sqlx::PgPool;

/// What is still open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::FromRow)]
pub(super) struct Unrest {
    /// Orders not final and not held.
    pub(super) open: i64,
    /// Orders a person must decide on.
    pub(super) held: i64,
    /// Messages neither delivered nor given up.
    pub(super) messages: i64,
}

impl Unrest {
    pub(super) async fn look(db: &PgPool) -> Result<Self, sqlx::Error> {
        sqlx::query_as(
            "-- replay unrest
             SELECT count(*) FILTER (WHERE NOT held_for_review) AS open,
                    count(*) FILTER (WHERE held_for_review) AS held,
                    (SELECT count(*) FROM outbox WHERE state = 'pending') AS messages
             FROM orders WHERE closed_at IS NULL",
        )
        .fetch_one(db)
        .await
    }

    pub(super) fn is_rest(&self) -> bool {
        self.open == 0 && self.messages == 0
    }

    /// For a replay that should have come to rest.
    pub(super) async fn describe(&self, db: &PgPool, waited: Duration) -> Result<String, sqlx::Error> {
        let some: Vec<String> = sqlx::query_scalar(
            "-- replay open orders
             SELECT id || ' ' || status FROM orders WHERE closed_at IS NULL AND NOT held_for_review ORDER BY id LIMIT 10",
        )
        .fetch_all(db)
        .await?;
        Ok(format!(
            "not at rest {waited:?} after the last order was created: {} open orders, {} undelivered messages; {}",
            self.open,
            self.messages,
            some.join(", ")
        ))
    }
}
