//! What people and programs are told, as values.
//!
//! * `kind`: what a message is about. [`body`]: what it says.
//! * `message`: the messages, each with whom it is for. `customer`: what a customer is told, and in which words. `repeated`: alerts
//!   told again. `bindings`: what is told of bindings.
//! * `producer_event`: what of it a producer may subscribe to.
//! * `addressee`: which dispatcher a message names.
//! * `state`: the states of a row of the outbox. `subject`: what a row is about.
//! * [`text`], [`money`]: how they read for people.
//! * [`routes`]: which channels reach whom, and when an unanswered alert is told again.
//!   `business_hours`: when the desk of support is open.

mod addressee;
mod bindings;
pub mod body;
mod business_hours;
mod customer;
mod kind;
mod message;
pub mod money;
mod producer_event;
mod repeated;
pub mod routes;
mod state;
mod subject;
pub mod text;
#[cfg(test)]
mod wire;

pub use addressee::Addressee;
pub use bindings::binding_messages;
pub use body::{CancelCause, CustomerBody, MessageBody, RetrievalMethod, StoredMessage};
pub use business_hours::{BusinessHours, InvalidMinuteOfDay, MinuteOfDay};
pub use customer::{cancelled_by_system, customer_cancelled};
pub use kind::*;
pub use message::*;
pub use producer_event::ProducerEvent;
pub use repeated::{RepeatedAlert, alert_escalation, dispatcher_reminder, sla_warning};
pub use routes::{AlertTelling, ChannelRoutes};
pub use state::{DeliveryResult, OutboxState};
pub use subject::{InvalidSubject, MessageSubject, NO_ORDER, SubjectColumns};
