//! STATUS_UPDATE_FAILED: alert that Postgres did not store the end of an order.
//!
//! The job contains its own payload, because the database has failed. It is enqueued immediately if Postgres refuses
//! the statement. If Postgres is unreachable, it is delayed by [`OUTAGE_GRACE`], because most outages are short.
//! `workers/src/alarm.rs` performs it.

use std::time::Duration;

use jobs::{OrderId, SendAlarm, alarm::AlarmContent};
use model::messages;

use crate::capability::Orders;
use foundation::db;
use queue::NewJob;

/// Duration that an outage must exceed to raise an alert.
pub const OUTAGE_GRACE: Duration = Duration::from_secs(60);

/// Enqueues the alert that this order's end could not be written. A failure to enqueue is logged: the failed job runs
/// again and calls this again.
pub async fn raise_alarm(orders: &Orders, order: &OrderId, error: &sqlx::Error) {
    let delay = if db::is_transient(error) { OUTAGE_GRACE } else { Duration::ZERO };
    // This machine's clock, because Postgres may be the server that failed.
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
        tracing::error!(order.id = %order, %error, "The end of an order could not be written, and the alert could not be enqueued.");
    }
}
