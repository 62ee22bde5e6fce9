//! Orders served by a partner: an attempt is a booking at the partner, who finds the driver and reports back.
//!
//! The partner's wire is described in docs/PARTNER.md.
//!
//! * [`settings`]: the configured partners, ready to be called, and what operators set at run time.
//! * [`client`]: the partner's API: book, ask, cancel; its errors by what they mean for us.
//! * [`throttle`]: breaker, rate and concurrency around every call, shared by the fleet.
//! * [`observation`]: what a callback or an answer says, in one form.
//! * [`decide`]: what it leads to. Pure.
//! * [`book`], [`poll`], [`timeout`], [`cancel_booking`]: what the jobs of a partner's order do.
//! * [`failure`]: what all calls have in common when they fail.
//! * [`inbox`], [`callback`]: callbacks are stored first and acted on after.
//! * [`backoff`]: when the partner is asked again. Pure.

pub mod book;
pub mod callback;
pub mod cancel_booking;
pub mod client;
pub mod failure;
pub mod inbox;
pub mod poll;
pub mod settings;
pub mod throttle;
pub mod timeout;

pub use settings::{ConfiguredPartner, PartnerRegistry};

pub use model::partner::{BookingReference, backoff, decide, observation};
