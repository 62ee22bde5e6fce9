//! Messages to people and programs.
//!
//! The messages themselves are in [`model::messages`].
//!
//! * [`capability`]: the struct through which other crates use this one.
//! * [`outbox`]: message rows, written in the transaction of the change that causes them.
//! * [`recipients`]: the rows of a message, from its route or one per dispatcher.
//! * [`channels`]: delivery of one message: log, webhook, Slack, e-mail, ticket, call.
//! * [`deliveries`]: delivery tries, many in one statement. [`failed_tries`]: what follows a failed try.
//! * [`endpoints`]: webhook endpoints of producers.
//! * [`alerts`]: messages that a person acknowledges. [`tickets`]: tickets that alerts opened in ticket systems.
//! * [`escalation`]: repetition of unacknowledged alerts.

// The futures of handlers are nested deeper than the default limit.
#![recursion_limit = "256"]

pub mod alerts;
pub mod capability;
pub mod channels;
pub mod deliveries;
pub mod endpoints;
pub mod escalation;
pub mod failed_tries;
pub mod outbox;
pub mod recipients;
pub mod tickets;
