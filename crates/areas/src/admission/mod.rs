//! Admission: refuses new orders early where an area is full. Design: docs/design/admission.md.
//!
//! * [`waiting`]: waiting orders by area and service type, in a sorted set in Redis, with Postgres as the fallback.
//! * [`check`]: advice, before an order is created, on whether there is room.
//! * [`place`]: reserves the place when an order is created. Only this decides.
//! * [`effective`]: the limits of an area and service type after all inheritance. [`limits_mirror`]: copies of these
//!   limits in Redis for other programs.
//! * [`count`]: the verdict of each request, for metrics, report counts and shadow mode records.
//! * [`sql_orders`]: adds orders that were created in SQL to the sets.
//!
//! Decisions, limits, schedules, advice and answers are in [`model::admission`].
//!
//! The set in Redis is a gate that keeps load away from Postgres. The row is inserted only if Postgres also counts
//! fewer waiting orders than the threshold. The threshold is therefore never exceeded, even if Redis fails or loses its
//! data.

pub mod check;
pub mod count;
pub mod effective;
pub mod limits_mirror;
pub mod place;
pub mod sql_orders;
pub mod waiting;

pub use model::admission::{advise, answer, decide, limits, schedule};
