//! Telling people and programs what happened.
//!
//! The messages themselves are in [`model::messages`].
//!
//! * [`outbox`]: messages as rows, written in the transaction of the transition that causes them.
//! * [`alerts`]: the messages that a person acknowledges.
//! * [`channel`]: how one message travels: log, webhook, Slack, e-mail, ticket.
//! * [`notify`]: the job that delivers one row over one channel, again and again until it arrives or is given up.
//! * [`escalate`]: the jobs that tell again about an alert that was not acknowledged.
//! * [`alarm`]: the job that alerts support when the database refuses an order's end.
//! * `state`: the states of a message's row.
//! * [`redeliver`]: dead messages, listed and sent again by hand.

pub mod alarm;
pub mod alerts;
pub mod channel;
pub mod escalate;
pub mod notify;
pub mod outbox;
pub mod redeliver;
mod state;

pub use channel::{MessageChannel, MessageChannels};
pub use model::messages::{
    self, ChannelRoutes, Message, MessageAudience, MessageBody, StoredMessage, money, routes, text,
};
pub use state::{DeliveryResult, OutboxState};
