//! Admission: orders are refused early where an area is full.
//! Design: docs/design/admission.md.
//!
//! * [`limits`]: thresholds, cooldowns, loyalty, overrides, the flag. Pure.
//! * [`schedule`]: thresholds by weekday and time of day. Pure.
//! * [`advise`]: thresholds proposed from what an area has done. Pure.
//! * [`decide`]: whether an area takes one more order. Pure.
//! * [`waiting`]: who waits where: a sorted set in Redis per area and service type, and Postgres behind it.
//! * [`check`]: the advice before an order: is there room?
//! * [`effective`]: the limits of an area and service type, after all inheritance.
//! * [`limits_mirror`]: copies of limits in Redis, for others to read.
//! * [`place`]: taking a place when the order is created. What counts.
//! * [`count`]: what became of each request: metrics, the report's counts, shadow mode's records.
//! * [`sql_orders`]: orders created in SQL, on their way into these sets.
//! * [`answer`]: what is said, to the letter of the requirement, in two languages.
//!
//! The set in Redis is the gatekeeper and sheds the load; the row is inserted only if Postgres, too, counts fewer. So no
//! threshold is overshot, whatever Redis does or forgets.

pub mod check;
pub mod count;
pub mod effective;
pub mod limits_mirror;
pub mod place;
pub mod sql_orders;
pub mod waiting;

pub use model::admission::{advise, answer, decide, limits, schedule};
