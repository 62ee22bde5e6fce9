//! Web Push to the browsers of drivers (RFC 8030). Design: docs/design/driver-and-customer-pages.md.
//!
//! * [`channel`]: sends the message about an offer to each browser of its driver.
//! * [`encryption`]: encrypts a message for one browser (RFC 8291). [`vapid`]: the key that identifies this installation
//!   (RFC 8292).
//! * [`subscriptions`]: the browsers that drivers have registered.

pub mod channel;
mod encryption;
pub mod subscriptions;
pub mod vapid;
