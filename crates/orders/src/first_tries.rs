//! First tries of messages, sent by the process that wrote them. Design: docs/design/outbox-and-channels.md.
//!
//! The statement that writes a message also claims its first try: the row counts it and is due again after
//! [`CLAIM`](notify::deliveries::CLAIM), and so is the job. After the commit this process sends the message, records the
//! result and cancels the job. If the process dies in between, the job sends the message again under the same id.
//!
//! A message is left to its job if its channel has no free place, or needs a phone number or an address that only
//! Postgres has, or if its change has an alert, a payment, new contents or a message about a step. `serve` sends no
//! messages, because it may run where it cannot reach their receivers.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::order_store::{values::OutboxValues, write::OrderWrite};
use notify::{capability::Notify, channels::LanePlace};

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
        if !self.0.load(Ordering::Relaxed) || !item.allows_first_tries() {
            return Vec::new();
        }
        let sends_alone = |m: &&mut OutboxValues| !notify.channels.needs_recipient(&m.channel);
        let claim = |message: &mut OutboxValues| {
            let place = notify.channels.try_enter_lane(&message.channel)?;
            message.claim();
            Some(ClaimedTry { message: message.clone(), place })
        };
        item.messages.iter_mut().filter(sends_alone).filter_map(claim).collect()
    }
}

/// A claimed first try, with its place on the channel. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct ClaimedTry {
    pub(crate) message: OutboxValues,
    pub(crate) place: LanePlace,
}
