//! Telling people and programs what happened.
//!
//! The messages themselves are in [`model::messages`], and what they travel by in [`channels`](crate::channels).
//!
//! * [`outbox`]: messages as rows, written in the transaction of the transition that causes them.
//! * [`alerts`]: the messages that a person acknowledges.

pub mod alerts;
pub mod outbox;

pub use model::messages::{
    self, ChannelRoutes, Message, MessageAudience, MessageBody, StoredMessage, money, routes, text,
};
pub use model::messages::{DeliveryResult, OutboxState};
