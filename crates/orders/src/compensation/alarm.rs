//! STATUS_UPDATE_FAILED: the alert about an order whose end Postgres refuses.
//!
//! The job carries its own payload, for the database is what failed. It is enqueued at once when Postgres refuses the statement, and
//! [`OUTAGE_GRACE`] later when Postgres cannot be reached, which mostly passes by itself.
//! `workers/src/alarm.rs` performs it.

use std::time::Duration;

use jobs::{OrderId, SendAlarm, alarm::AlarmContent};
use model::messages;

use crate::capability::Orders;
use foundation::db;
use queue::NewJob;

/// An outage shorter than this raises no alert.
pub const OUTAGE_GRACE: Duration = Duration::from_secs(60);

/// Enqueues the alert that this order's end could not be written. A failure to enqueue is logged: the job that failed runs again and
/// calls this again.
pub async fn raise_alarm(orders: &Orders, order: &OrderId, error: &sqlx::Error) {
    let delay = if db::is_transient(error) { OUTAGE_GRACE } else { Duration::ZERO };
    // Postgres, whose clock counts elsewhere, may be what failed.
    let message = messages::status_update_failed(order, &error.to_string(), orders.core.clock.now());
    let jobs: Vec<NewJob> = orders
        .config
        .notifications
        .channels_for(&message.audience)
        .iter()
        .map(|channel| {
            let content = AlarmContent { message: message.body.to_payload(), told: false };
            NewJob::after(&SendAlarm { order: order.clone(), channel: channel.clone(), content }, delay)
        })
        .collect();
    if let Err(error) = orders.core.queue().enqueue(&jobs).await {
        tracing::error!(order.id = %order, %error, "The end of an order could not be written, nor anyone told.");
    }
}
