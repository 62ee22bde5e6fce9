//! Requirement: docs/requirements/dual-queue.md.
//!
//! `notify:{order or binding}:{outbox id}`: delivers one message over one channel.
//!
//! The row decides: it has the number of tries and the time of the next one. A run claims a try in the row before it
//! sends the message. So nothing is sent while the database is read-only, and the backoff is stored even if the
//! database fails later.
//!
//! Delivery is at least once: if the process dies after the receiver answered and before the row is updated, the
//! message is sent again under the same id, once its claim or backoff has passed. If the channel has no free place, the
//! job is parked until the time in the message's row.

use jobs::{BindingId, OrderId, SendNotification};
use model::{
    decide::{actions, timers},
    messages::DeliveryResult,
    order::Snapshot,
};

use foundation::{crash, db};
use notify::{
    channels::{LanePlace, OutgoingMessage},
    deliveries::BACKOFF,
    failed_tries,
    outbox::{self, OutboxRow},
};
use orders::{capability::Orders, seen::Basis, sent_contents, step};
use queue::{Job, Outcome};

/// Number of times that a run reads the row again because another run changed it.
const MAX_LOOKS: usize = 3;

pub async fn perform_notify(orders: Orders, job: SendNotification) -> Outcome {
    try_notify(&orders, &job).await.unwrap_or_else(|error| db::database_failed(&*orders.core.rng, &error))
}

async fn try_notify(orders: &Orders, job: &SendNotification) -> Result<Outcome, sqlx::Error> {
    for _ in 0..MAX_LOOKS {
        let Some(waiting) = orders.notify.deliveries.load_waiting(job.outbox_id).await? else {
            return Ok(Outcome::done());
        };
        if waiting.now < waiting.next_attempt_at {
            return Ok(Outcome::Snooze { delay: timers::time_until(waiting.next_attempt_at, waiting.now) });
        }
        if waiting.is_worthless {
            // The driver's offer has expired or was withdrawn, or the time for the OTP is over.
            outbox::expire_message(&orders.core.db, job.outbox_id).await?;
            return Ok(Outcome::done());
        }
        match orders.notify.channels.enter_lane(&waiting.channel) {
            Err(pause) => {
                if let Some(at) = outbox::park_message(&orders.core.db, job.outbox_id, pause).await? {
                    return Ok(Outcome::Snooze { delay: timers::time_until(at, waiting.now) });
                }
            }
            Ok(place) => {
                if let Some(row) =
                    orders.notify.deliveries.claim_try(job.outbox_id, orders.core.rng.next_unit()).await?
                {
                    return deliver_message(orders, job, &row, place).await;
                }
            }
        }
    }
    Ok(Outcome::Snooze { delay: BACKOFF.initial })
}

/// Sends the message for the claimed try.
async fn deliver_message(
    orders: &Orders,
    job: &SendNotification,
    row: &OutboxRow,
    place: LanePlace,
) -> Result<Outcome, sqlx::Error> {
    let content = sent_contents::with_contents(&orders.core.db, &row.content).await?;
    let parcel = OutgoingMessage {
        id: row.message_id,
        subject: &row.subject,
        content: &content,
        phone: row.phone.as_deref(),
        email: row.email.as_deref(),
    };
    let delivery = match orders.notify.deliver_message(place, &row.channel, &parcel).await {
        Ok(ticket) => DeliveryResult::Delivered(ticket),
        Err(error) => failed_tries::after_failure(row, &error),
    };
    crash::reach_point("notify", "sent");
    if let DeliveryResult::Unreachable(error) = &delivery {
        // Withdraws the offer first, because a recorded row is not processed again.
        let withdrawn = withdraw_unreachable(orders, job, row, error).await?;
        if matches!(withdrawn, Outcome::Done { .. }) {
            orders.notify.deliveries.record_delivery(row, &delivery).await?;
        }
        return Ok(withdrawn);
    }
    orders.notify.deliveries.record_delivery(row, &delivery).await?;
    Ok(match delivery {
        DeliveryResult::Delivered(_) | DeliveryResult::Expired(_) | DeliveryResult::Unreachable(_) => Outcome::done(),
        DeliveryResult::Again(at, error) => {
            tracing::warn!(
                order.id = row.subject.order_id().map(OrderId::as_str),
                binding_id = row.subject.binding_id().map(BindingId::as_str),
                message.id = row.id,
                channel = row.channel,
                error,
                "A message did not arrive; it will be sent again."
            );
            Outcome::Snooze { delay: timers::time_until(at, row.now) }
        }
        DeliveryResult::Dead(error) => Outcome::Dead(error),
    })
}

/// Withdraws an offer that cannot be delivered, unless another channel has delivered it or still may.
async fn withdraw_unreachable(
    orders: &Orders,
    job: &SendNotification,
    row: &OutboxRow,
    error: &str,
) -> Result<Outcome, sqlx::Error> {
    outbox::mark_unreachable(&orders.core.db, row.id).await?;
    let Some(offer) = outbox::undelivered_offer(&orders.core.db, row.id).await? else { return Ok(Outcome::done()) };
    let Some(order) = row.subject.order_id() else { return Ok(Outcome::done()) };
    tracing::warn!(
        order.id = %order,
        channel = row.channel,
        error,
        "An offer cannot be delivered; it is withdrawn."
    );
    let why = format!("could not be reached over {}: {error}", row.channel);
    let decide = |s: &Snapshot| actions::withdraw_offer(s, offer, &why);
    Ok(step::record_answer(orders, order, Basis::Fresh, &job.id(), decide).await)
}
