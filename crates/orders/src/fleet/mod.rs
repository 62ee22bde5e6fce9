//! Fleet dispatch: drivers near the pickup are asked, one after the other or several at once, until one accepts.
//!
//! * [`drivers`]: who they are and whether they want work. [`offer_board`]: their apps wait here for offers.
//! * [`driver_admin`]: drivers added, changed, disabled and listed by staff. [`driver_offers`]: what became of the offers to one.
//! * [`driver_index`]: who is near a place: a GEO index in Redis, and Postgres behind it.
//! * [`candidates`]: which of them may be asked. [`waiting_orders`]: orders that found none, and drivers who come to be free.
//! * [`ranking`]: who is asked first, and why. Pure.
//! * [`policy`]: the durations and choices of a service type.
//! * [`decide`]: what an attempt's start, its timeout and the lifetime lead to. Pure.
//! * [`dispatch`], [`timeout`], [`lifetime`], [`trip`]: the four jobs, each a few lines around a decision.

pub mod candidates;
pub mod driver_admin;
pub mod driver_index;
pub mod driver_offers;
pub mod drivers;
pub mod waiting_orders;

pub use model::{fleet::decide, policy, ranking};
