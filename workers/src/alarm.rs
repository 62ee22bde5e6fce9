//! Requirement: docs/requirements/job-id-retrieval.md.
//!
//! `alarm:{order}:{channel}`: delivers STATUS_UPDATE_FAILED, the alert about an order whose final status Postgres
//! refuses.
//!
//! A run first tries again to write the final status, and notifies support only if that fails. While Postgres accepts
//! no writes at all, the job sends no alerts about individual orders: [`outage`](orders::compensation::outage) sends
//! one alert for all of them.
//!
//! After the delivery the job stays, marked as `told`, until the delivery is in the delivery log. From then on the log
//! prevents a second delivery, so each channel is notified once. If the process dies between sending and settling, the
//! channel is notified again with the same message id.

use std::time::Duration;

use jobs::{OrderId, SendAlarm};
use model::messages::{MessageSubject, STATUS_UPDATE_FAILED, StoredMessage};
use uuid::Uuid;

use crate::compensate;
use foundation::db;
use notify::{
    alerts,
    channels::{DeliveryError, OutgoingMessage},
    outbox::{self, DeliveredMessage},
};
use orders::{capability::Orders, compensation::alarm::OUTAGE_GRACE};
use queue::{NewJob, Outcome};

/// Pause before the next attempt to write the delivery log.
const LOG_PAUSE: Duration = Duration::from_secs(60);

pub async fn perform_alarm(orders: Orders, mut job: SendAlarm) -> Outcome {
    let id = message_id(&job.order, &job.channel);
    // The stored message is sent unchanged, whichever version stored it.
    let message = StoredMessage { kind: STATUS_UPDATE_FAILED.to_owned(), payload: job.content.message.clone() };
    if !job.content.told {
        match compensate::write_compensation(&orders, &job.order).await {
            Ok(outcome) => return outcome,
            Err(error) if db::is_transient(&error) => {
                if !orders.core.readiness.is_writable().await {
                    return Outcome::Snooze { delay: OUTAGE_GRACE };
                }
            }
            // An earlier job with this id may have delivered the message.
            Err(_) => job.content.told = outbox::was_delivered(&orders.core.db, &job.order, id).await.unwrap_or(false),
        }
    }
    // The job does not contain the ticket, so the ticket is kept only if this run writes the log.
    let mut ticket = None;
    if !job.content.told {
        let subject = MessageSubject::Order(job.order.clone());
        let parcel = OutgoingMessage { id, subject: &subject, content: &message, phone: None, email: None };
        let place = match orders.notify.channels.enter_lane(&job.channel) {
            Ok(place) => place,
            Err(delay) => return Outcome::Snooze { delay },
        };
        match orders.notify.channels.deliver_message(place, &job.channel, &parcel).await {
            Ok(opened) => (job.content.told, ticket) = (true, opened),
            Err(error @ DeliveryError::Gone(_)) => return Outcome::Dead(error.to_string()),
            Err(error) => return Outcome::Retry(error.to_string()),
        }
    }
    let logged = async {
        let routes = &orders.config.notifications;
        let sent = DeliveredMessage { message: &message, channel: &job.channel, id, ticket: ticket.as_ref() };
        outbox::insert_delivered(&orders.core.db, routes, &job.order, &sent).await?;
        alerts::derived_jobs(&orders.core.db, &job.order).await
    };
    match logged.await {
        Ok(jobs) => Outcome::then_enqueue(jobs),
        Err(error) => {
            tracing::debug!(order.id = %job.order, %error, "The delivery log cannot be written yet.");
            Outcome::then_enqueue(vec![NewJob::after(&job, LOG_PAUSE)])
        }
    }
}

/// Returns a message id that is the same in every process.
fn message_id(order: &OrderId, channel: &str) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{STATUS_UPDATE_FAILED}:{order}:{channel}").as_bytes())
}
