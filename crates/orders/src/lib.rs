//! Orders: their rows, the one way to change them, and the drivers who serve them. States and decisions are in [`model::order`]
//! and [`model::decide`].
//!
//! * [`capability`]: the struct that the other crates hold.
//! * [`create`]: creates orders. [`service_types`]: the configured service types in Postgres, for orders created in SQL.
//! * [`update`]: changes an order on request and enqueues its timers. [`timer_calls`]: these calls to Redis, in batches.
//!   [`unsent`], [`unsent_timers`]: orders whose timers Redis did not take.
//! * [`commit`]: decides on an order, writes the change, and does what follows a commit.
//! * [`store`], [`order_store`]: load and write rows, alone and in batches. No other code writes to `orders`.
//! * [`step`]: the common part of all timers of orders. [`seen`]: an order as it was read shortly before a call to another server.
//! * [`accept`]: gives an order to one driver, however many accept. `accept_gate` refuses all others; [`gate_views`] remembers
//!   what the gate answered.
//! * [`offers`]: live offers, and apps that wait for them. [`fleet`]: drivers, the index of places, candidates, waiting orders.
//!   `freed_drivers`: drivers who may be free again.
//! * [`compensation`]: what the end of an order means for the payment. [`payments`]: the client of the payment service.
//! * [`query`]: timelines and single orders for people. [`search`]: lists for staff, page by page. [`feed`]: steps of orders for
//!   producers.
//! * [`metrics`]: counters of changes. [`retrieval_log`]: log lines about missing job ids.

// Futures of handlers are nested deeper than the default allows.
#![recursion_limit = "256"]

pub mod accept;
pub(crate) mod accept_gate;
pub mod capability;
pub mod commit;
pub mod compensation;
pub mod create;
pub mod feed;
pub mod fleet;
pub(crate) mod freed_drivers;
pub mod gate_views;
pub mod metrics;
pub mod offers;
pub mod order_store;
pub mod payments;
pub mod query;
pub mod retrieval_log;
pub mod search;
pub mod seen;
pub mod service_types;
pub mod step;
pub mod store;
pub mod timer_calls;
pub mod unsent;
pub mod unsent_timers;
pub mod update;
