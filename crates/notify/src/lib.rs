//! Telling people and programs what happened.
//!
//! The messages themselves are in [`model::messages`], and what they travel by in [`channels`](crate::channels).
//!
//! * [`outbox`]: messages as rows, written in the transaction of the transition that causes them.
//! * `recipients`: the rows of a message: by its route, or one for each dispatcher.
//! * [`deliveries`]: tries to deliver them, many in one statement.
//! * [`alerts`]: the messages that a person acknowledges. [`tickets`]: what they opened in ticket systems.
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
