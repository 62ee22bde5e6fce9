//! Orders: the rows, and the one way they change. What they are and every decision on them is in [`model::order`].
//!
//! * [`update`]: changes an order on request, and enqueues what follows.
//! * [`unsent`]: orders whose timers Redis did not take.
//! * [`store`]: loads snapshots and writes changes; the only code that writes to `orders`.
//! * [`create`]: how an order comes into being.
//! * [`query`]: reads for people: lists and timelines. [`census`]: counts of open orders.
//! * [`metrics`]: counters of what changes; [`area_label`]: areas as their labels.

pub mod area_label;
pub mod census;
pub mod create;
pub mod metrics;
pub mod query;
pub mod store;
pub mod unsent;
pub mod update;

pub use model::order::*;
