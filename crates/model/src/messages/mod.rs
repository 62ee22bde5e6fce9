//! What people and programs are told, as values.
//!
//! * `kind`: what a message is about. [`body`]: what it says.
//! * `message`: the messages, each with whom it is for. `repeated`: alerts told again. `state`: the states of a row of the outbox.
//! * [`text`], [`money`]: how they read for people.
//! * [`routes`]: which channels reach whom, and how often an unanswered alert is told again.

pub mod body;
mod kind;
mod message;
pub mod money;
mod repeated;
pub mod routes;
mod state;
pub mod text;
#[cfg(test)]
mod wire;

pub use body::{MessageBody, RetrievalMethod, StoredMessage};
pub use kind::*;
pub use message::*;
pub use repeated::{RepeatedAlert, alert_escalation, dispatcher_reminder};
pub use routes::ChannelRoutes;
pub use state::{DeliveryResult, OutboxState};
