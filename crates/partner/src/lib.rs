//! Orders served by a partner: an attempt is a booking at the partner, who finds the driver and reports back.
//! Design: docs/design/partner.md.
//!
//! How a partner is called is in [`partner_client`](crate::client).
//!
//! * [`observation`]: what a callback or an answer says, in one form.
//! * [`decide`]: what it leads to. Pure.
//! * [`book`], [`poll`], [`timeout`], [`cancel_booking`]: what the jobs of a partner's order do.
//! * [`failure`]: what all calls have in common when they fail.
//! * [`inbox`], [`callback`]: callbacks are stored with their change, or first and acted on after.
//! * [`backoff`]: when the partner is asked again. Pure.

// Futures of handlers are nested deeper than the default allows.
#![recursion_limit = "256"]

pub mod book;
pub mod callback;
pub mod capability;
pub mod client;
pub mod failure;
pub mod inbox;
pub mod timeout;
