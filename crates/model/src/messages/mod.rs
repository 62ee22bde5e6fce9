//! What people and programs are told, as values.
//!
//! * `kind`: what a message is about. [`body`]: what it says.
//! * `message`: the messages, each with whom it is for. `repeated`: alerts told again.
//! * [`text`], [`money`]: how they read for people.
//! * [`routes`]: which channels reach whom, and how often an unanswered alert is told again.

pub mod body;
mod kind;
mod message;
pub mod money;
mod repeated;
pub mod routes;
pub mod text;
#[cfg(test)]
mod wire;

pub use body::{MessageBody, RetrievalMethod, StoredMessage};
pub use kind::*;
pub use message::*;
pub use repeated::{RepeatedAlert, alert_escalation, dispatcher_reminder};
pub use routes::ChannelRoutes;
