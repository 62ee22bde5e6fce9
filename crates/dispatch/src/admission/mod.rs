//! Admission: orders are refused early where an area is full.
//!
//! * [`limits`]: thresholds, cooldowns, loyalty, overrides, the flag. Pure.
//! * [`decide`]: whether an area takes one more order. Pure.
//! * [`waiting`]: who waits where: a sorted set in Redis per area and service type, and Postgres behind it.
//! * [`check`]: the advice before an order: is there room?
//! * [`place`]: taking a place when the order is created. What counts.
//! * [`answer`]: what is said, to the letter of the requirement, in two languages.
//!
//! The set in Redis is the gatekeeper and sheds the load; the row is inserted only if Postgres, too, counts fewer. So no
//! threshold is overshot, whatever Redis does or forgets.

pub mod check;
pub mod place;
pub mod waiting;

pub use model::admission::{answer, decide, limits};
