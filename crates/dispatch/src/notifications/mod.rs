//! Telling people and programs what happened.
//!
//! The messages themselves are in [`model::messages`].
//!
//! * [`outbox`]: messages as rows, written in the transaction of the transition that causes them.
//! * [`alerts`]: the messages that a person acknowledges.
//! * [`channel`]: how one message travels: log, webhook, Slack, e-mail, ticket.

pub mod alerts;
pub mod channel;
pub mod outbox;

pub use channel::{MessageChannel, MessageChannels};
pub use model::messages::{
    self, ChannelRoutes, Message, MessageAudience, MessageBody, StoredMessage, money, routes, text,
};
pub use model::messages::{DeliveryResult, OutboxState};
