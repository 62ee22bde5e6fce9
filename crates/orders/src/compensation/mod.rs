//! Payment consequences of orders that the system ends.
//!
//! * [`alarm`]: alerts support if the database refuses the end of an order. [`outage`]: alerts support once while
//!   Postgres is unavailable.
//!
//! The decision is in [`model::compensation`]. The jobs are in `workers/src`: compensate.rs, refund.rs, alarm.rs.

pub mod alarm;
pub mod outage;

pub use model::compensation as decide;
