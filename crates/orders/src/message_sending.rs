//! Sends the messages of a committed change whose first tries it claimed; see [`first_tries`](crate::first_tries).

use std::time::Duration;

use jobs::OrderId;
use model::{
    decide::timers,
    ids::TicketId,
    messages::{DeliveryResult, MessageSubject, OutboxState, StoredMessage},
};
use queue::{JobAddress, NewJob, retry::add_jitter};
use tokio::time::timeout;
use tracing::Instrument;

use crate::{
    capability::Orders,
    first_tries::ClaimedTry,
    order_store::{values::OutboxValues, write::WrittenMessage},
    sent_contents,
    timer_sending::send_jobs,
};
use foundation::crash;
use notify::{
    channels::{DeliveryError, LanePlace, OutgoingMessage},
    deliveries::BACKOFF,
    failed_tries::after_failure,
    outbox::OutboxRow,
};

/// Timeout of a first try. It ends before the claim, so that the job does not send the message at the same time.
const TIMEOUT: Duration = Duration::from_secs(6);

/// Sends the claimed messages that were written, in the background.
pub(crate) fn send_claimed(orders: &Orders, claimed: Vec<ClaimedTry>, written: &[WrittenMessage]) {
    for ClaimedTry { message, place } in claimed {
        // A message that was written before is not written again. Nothing is claimed while messages are paused.
        let is_sent = |w: &&WrittenMessage| w.is_claimed && w.message_id == message.message_id;
        let Some(written) = written.iter().find(is_sent) else { continue };
        let (row, sender) = (to_row(&message, written.id, orders.core.rng.next_unit()), orders.clone());
        let sent = async move { send_one(&sender, &message.order_id, &row, place).await };
        orders.core.behind_answers.spawn(sent.in_current_span());
    }
}

async fn send_one(orders: &Orders, order: &OrderId, row: &OutboxRow, place: LanePlace) {
    crash::reach_point("first_try", "sends");
    let sent = timeout(TIMEOUT, deliver(orders, row, place)).await.unwrap_or_else(|_| {
        Err(DeliveryError::Again { error: format!("no answer within {} s", TIMEOUT.as_secs()), pause: None })
    });
    let delivery = match sent {
        Ok(ticket) => DeliveryResult::Delivered(ticket),
        Err(error) => match after_failure(row, &error) {
            // The job finds the same answer and does what follows from it.
            DeliveryResult::Unreachable(error) | DeliveryResult::Dead(error) => DeliveryResult::Again(row.now, error),
            other => other,
        },
    };
    crash::reach_point("first_try", "sent");
    match orders.notify.deliveries.record_first_try(row, &delivery).await {
        Ok(true) => move_job(orders, order, row, delivery).await,
        Ok(false) => {}
        Err(error) => {
            tracing::warn!(order.id = %order, message.id = row.id, %error, "The delivery of a message could not be recorded; its job sends it again.");
        }
    }
}

async fn deliver(orders: &Orders, row: &OutboxRow, place: LanePlace) -> Result<Option<TicketId>, DeliveryError> {
    let again = |error: sqlx::Error| DeliveryError::Again { error: error.to_string(), pause: None };
    let content = sent_contents::with_contents(&orders.core.db, &row.content).await.map_err(again)?;
    let parcel =
        OutgoingMessage { id: row.message_id, subject: &row.subject, content: &content, phone: None, email: None };
    orders.notify.deliver_message(place, &row.channel, &parcel).await
}

/// Moves the message's job to the next try, or cancels it if there is none.
async fn move_job(orders: &Orders, order: &OrderId, row: &OutboxRow, delivery: DeliveryResult) {
    let job_at = |at| timers::message_timer(order.clone().into(), row.id, at, row.now).job;
    if let DeliveryResult::Again(at, error) = delivery {
        tracing::warn!(order.id = %order, message.id = row.id, channel = row.channel, error, "A message did not arrive; it will be sent again.");
        send_jobs(orders, order, vec![job_at(at)], Vec::new()).await;
    } else {
        let NewJob { queue, id, .. } = job_at(row.now);
        send_jobs(orders, order, Vec::new(), vec![JobAddress { queue, id }]).await;
    }
}

/// Returns the row as the write stored it. `random` is in 0..1.
fn to_row(message: &OutboxValues, id: i64, random: f64) -> OutboxRow {
    OutboxRow {
        id,
        message_id: message.message_id,
        subject: MessageSubject::Order(message.order_id.clone()),
        content: StoredMessage { kind: message.kind.clone(), payload: message.payload.clone() },
        channel: message.channel.clone(),
        state: OutboxState::Pending,
        attempts: 1,
        backoff_from: 0,
        next_attempt_at: message.at + add_jitter(BACKOFF.initial, BACKOFF.jitter, random),
        expires_at: message.expires_at,
        offer_is_live: None,
        phone: None,
        email: None,
        now: message.at,
    }
}
