//! Messages to people and programs, as values.
//!
//! * `kind`: kinds of messages. [`body`]: their contents.
//! * `message`: the messages and their audiences. `customer`: messages to customers and their texts. `repeated`:
//!   repeated alerts. `bindings`: messages about bindings.
//! * `producer_event`: events that a producer can subscribe to. [`subscriptions`]: the endpoints that do.
//! * `addressee`: the dispatcher that a message is for.
//! * `state`: states of an outbox row. `subject`: the order or binding of a row.
//! * [`text`], [`money`]: rendering for people.
//! * [`routes`]: channels of each audience, and the schedule of repeated alerts. `business_hours`: opening hours of the
//!   support desk.

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
pub mod subscriptions;
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
pub use subject::{ENDPOINT_ORDER, InvalidSubject, MessageSubject, NO_ORDER, SubjectColumns};
