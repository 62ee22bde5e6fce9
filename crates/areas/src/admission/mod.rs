//! Admission: refuses orders early where an area is full.
//! Design: docs/design/admission.md.
//!
//! * [`waiting`]: waiting orders by area and service type: a sorted set in Redis, with Postgres behind it.
//! * [`check`]: the advice before an order: whether there is room.
//! * [`place`]: takes the place when an order is created. Only this counts.
//! * [`effective`]: the limits of an area and service type after all inheritance. [`limits_mirror`]: their copies in Redis, for
//!   other programs.
//! * [`count`]: the verdict of each request: metrics, counts of the report, records of shadow mode.
//! * [`sql_orders`]: adds orders that were created in SQL to the sets.
//!
//! Decisions, limits, schedules, advice and answers are in [`model::admission`].
//!
//! The set in Redis is the gate and sheds the load. The row is inserted only if Postgres counts fewer, too. So no threshold is
//! exceeded, even if Redis fails or loses its data.

pub mod check;
pub mod count;
pub mod effective;
pub mod limits_mirror;
pub mod place;
pub mod sql_orders;
pub mod waiting;

pub use model::admission::{advise, answer, decide, limits, schedule};
