//! Messages to people and programs.
//!
//! The messages are in [`model::messages`].
//!
//! * [`capability`]: the struct that the other crates hold.
//! * [`outbox`]: messages as rows, written in the transaction of the change that causes them.
//! * `recipients`: the rows of a message: by its route, or one per dispatcher.
//! * [`channels`]: delivery of one message: log, webhook, Slack, e-mail, ticket, call.
//! * [`deliveries`]: delivery attempts, many in one statement.
//! * [`alerts`]: messages that a person acknowledges. [`tickets`]: their tickets in ticket systems.
//! * [`escalation`]: sends unacknowledged alerts again.

// Futures of handlers are nested deeper than the default allows.
#![recursion_limit = "256"]

pub mod alerts;
pub mod capability;
pub mod channels;
pub mod deliveries;
pub mod escalation;
pub mod outbox;
mod recipients;
pub mod tickets;
