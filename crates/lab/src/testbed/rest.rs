//! Checks whether everything is settled.
//!
//! At rest every order is final, was driven to its end, or is held for a person. No message waits for delivery, no
//! callback for processing. No booking waits to be made or cancelled, here or at the partner.

use std::time::Duration;

use foundation::db::Pool;
use partner_sim::PartnerSim;

/// Counts of open work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::FromRow)]
pub(crate) struct OpenWork {
    /// Orders that are neither final nor held.
    pub(crate) open: i64,
    /// Orders that wait for a person's decision.
    pub(crate) held: i64,
    /// Messages that are neither delivered nor given up.
    pub(crate) messages: i64,
    /// Bookings that must be made or cancelled, or that exist for an ended order.
    pub(crate) bookings: i64,
    /// Callbacks that were not processed.
    pub(crate) callbacks: i64,
    /// Open bookings at the partner, and callbacks that it will send.
    #[sqlx(skip)]
    pub(crate) at_partner: usize,
}

impl OpenWork {
    pub(crate) async fn read_open_work(db: &Pool, partner: Option<&PartnerSim>) -> Result<Self, sqlx::Error> {
        let seen: Self = sqlx::query_as(
            "-- unrest
             SELECT count(*) FILTER (WHERE NOT held_for_review) AS open,
                    count(*) FILTER (WHERE held_for_review) AS held,
                    (SELECT count(*) FROM outbox WHERE state = 'pending') AS messages,
                    (SELECT count(*) FROM bookings b WHERE state IN ('intent', 'unknown', 'cancel_wanted')) AS bookings,
                    (SELECT count(*) FROM inbox WHERE state = 'pending') AS callbacks
             FROM orders WHERE closed_at IS NULL",
        )
        .fetch_one(db)
        .await?;
        let at_partner = partner.map(PartnerSim::read_report).map_or(0, |r| r.open_bookings + r.callbacks_waiting);
        Ok(Self { at_partner, ..seen })
    }

    pub(crate) fn is_rest(&self) -> bool {
        self.open == 0 && self.messages == 0 && self.bookings == 0 && self.callbacks == 0 && self.at_partner == 0
    }

    /// Describes the open work of a run that did not come to rest in time.
    pub(crate) async fn describe_open_work(&self, db: &Pool, waited: Duration) -> Result<String, sqlx::Error> {
        let some: Vec<String> = sqlx::query_scalar(
            "-- some open orders
             SELECT id || ' ' || status FROM orders WHERE closed_at IS NULL AND NOT held_for_review ORDER BY id LIMIT 10",
        )
        .fetch_all(db)
        .await?;
        Ok(format!(
            "not at rest {waited:?} after the last order was created: {} open orders, {} undelivered messages, {} bookings \
             to be made or cancelled, {} callbacks not acted on, {} bookings and callbacks at the partner; {}",
            self.open,
            self.messages,
            self.bookings,
            self.callbacks,
            self.at_partner,
            some.join(", ")
        ))
    }
}
