//! First tries of messages, sent by the process that wrote them. Design: docs/design/outbox-and-channels.md.
//!
//! The statement that writes a message also claims its first try: the row counts it and is due again after
//! [`CLAIM`](notify::deliveries::CLAIM), and so is the job. After the commit this process sends the message, records the
//! result and cancels the job. If the process dies in between, the job sends the message again under the same id.
//!
//! A message is left to its job if its channel has no free place, or needs a phone number or an address that only
//! Postgres has. `serve` sends no messages, because it may run where it cannot reach their receivers.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use jobs::OrderId;
use model::{
    decide::timers::{self, OrderTimer},
    messages::{DeliveryResult, MessageSubject, OutboxState, StoredMessage},
};
use queue::{JobAddress, retry::add_jitter};
use tracing::Instrument;

use crate::{
    capability::Orders,
    order_store::{
        values::OutboxValues,
        write::{OrderWrite, WrittenMessage},
    },
    update::send_jobs,
};
use foundation::crash;
use notify::{
    capability::Notify,
    channels::{LanePlace, OutgoingMessage},
    deliveries::BACKOFF,
    failed_tries::after_failure,
    outbox::OutboxRow,
};

/// Whether this process sends first tries. Clones share the answer.
#[derive(Debug, Clone, Default)]
pub struct FirstTries(Arc<AtomicBool>);

impl FirstTries {
    /// Lets this process send the messages that it writes. Otherwise their jobs send them.
    pub fn start(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Claims the first tries of the write's messages for which a channel has a place.
    pub(crate) fn claim(&self, notify: &Notify, item: &mut OrderWrite) -> Vec<ClaimedTry> {
        if !self.0.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let sends_alone = |m: &&mut OutboxValues| !notify.channels.needs_recipient(&m.channel);
        let claim = |message: &mut OutboxValues| {
            let place = notify.channels.enter_lane(&message.channel).ok()?;
            message.claim();
            Some(ClaimedTry { message: message.clone(), place })
        };
        item.messages.iter_mut().filter(sends_alone).filter_map(claim).collect()
    }
}

/// A claimed first try, with its place on the channel. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct ClaimedTry {
    message: OutboxValues,
    place: LanePlace,
}

/// Sends the claimed messages that were written, in the background.
pub(crate) fn send_claimed(orders: &Orders, claimed: Vec<ClaimedTry>, written: &[WrittenMessage]) {
    for ClaimedTry { message, place } in claimed {
        // A message that was written before is not written again.
        let Some(written) = written.iter().find(|w| w.message_id == message.message_id) else { continue };
        let (row, sender) = (to_row(&message, written.id, orders.core.rng.next_unit()), orders.clone());
        let sent = async move { send_one(&sender, &message.order_id, &row, place).await };
        orders.core.behind_answers.spawn(sent.in_current_span());
    }
}

async fn send_one(orders: &Orders, order: &OrderId, row: &OutboxRow, place: LanePlace) {
    let parcel =
        OutgoingMessage { id: row.message_id, subject: &row.subject, content: &row.content, phone: None, email: None };
    crash::reach_point("first_try", "sends");
    let delivery = match orders.notify.channels.deliver_message(place, &row.channel, &parcel).await {
        Ok(ticket) => DeliveryResult::Delivered(ticket),
        Err(error) => match after_failure(row, &error) {
            // The job finds the same answer and does what follows from it.
            DeliveryResult::Unreachable(error) | DeliveryResult::Dead(error) => DeliveryResult::Again(row.now, error),
            other => other,
        },
    };
    crash::reach_point("first_try", "sent");
    if let Err(error) = orders.notify.deliveries.record_first_try(row, &delivery).await {
        tracing::warn!(order.id = %order, message.id = row.id, %error, "The delivery of a message could not be recorded; its job sends it again.");
        return;
    }
    match delivery {
        DeliveryResult::Again(at, error) => {
            tracing::warn!(order.id = %order, message.id = row.id, channel = row.channel, error, "A message did not arrive; it will be sent again.");
            let OrderTimer { job, .. } = timers::message_timer(order.clone().into(), row.id, at, row.now);
            send_jobs(orders, order, vec![job], Vec::new()).await;
        }
        _ => {
            let OrderTimer { job, .. } = timers::message_timer(order.clone().into(), row.id, row.now, row.now);
            send_jobs(orders, order, Vec::new(), vec![JobAddress { queue: job.queue, id: job.id }]).await;
        }
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
