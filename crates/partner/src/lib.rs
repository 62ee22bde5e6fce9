//! Orders served by a partner: an attempt is a booking at the partner, which finds the driver and reports back. Design:
//! docs/design/partner.md.
//!
//! * [`capability`]: the struct through which other crates use partners.
//! * [`client`]: calls partners.
//! * [`book`]: books an attempt. [`timeout`]: ends an attempt whose time is over.
//! * [`inbox`], [`callback`]: callbacks are stored with their change, or stored first and processed afterwards.
//! * [`failure`]: the pause and the log line after a failed call.
//!
//! Observations, decisions and pauses are in [`model::partner`]. The jobs are in `workers/src`: poll.rs,
//! cancel_booking.rs, callback.rs.

// Futures of handlers are nested deeper than the default limit.
#![recursion_limit = "256"]

pub mod book;
pub mod callback;
pub mod capability;
pub mod client;
pub mod failure;
pub mod inbox;
pub mod timeout;
