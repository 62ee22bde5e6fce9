//! Drivers of our own fleet. An attempt offers the order to drivers near the pickup, one or several at once, until one
//! accepts.
//!
//! * [`drivers`]: drivers and their availability. [`driver_admin`]: drivers added, changed, disabled and listed by
//!   staff.
//! * [`driver_index`]: drivers near a position: a GEO index in Redis, with Postgres as fallback.
//! * [`candidates`]: drivers that may get an offer. [`driver_offers`]: results of the offers to one driver.
//! * [`waiting_orders`]: matches waiting orders with drivers who become free.
//!
//! Ranking and decisions are in [`model::ranking`] and [`model::fleet`]. The jobs are in `workers/src`: dispatch.rs,
//! timeout.rs, lifetime.rs, trip.rs.

pub mod candidate_search;
pub mod candidates;
pub mod driver_admin;
pub mod driver_index;
pub mod driver_offers;
pub mod drivers;
pub mod waiting_orders;

pub use model::{fleet::decide, policy, ranking};
