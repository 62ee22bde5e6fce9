//! Orders: their rows, every change to them, and the drivers who serve them. States and decisions are in
//! [`model::order`] and [`model::decide`].
//!
//! * [`capability`]: the struct through which other crates use orders.
//! * [`create`]: creates orders. [`created_answer`]: answers to repeated creations. [`details`]: reads the contents of
//!   orders. [`contents`]: changes them. [`sent_contents`]: adds them to messages. [`service_types`]: copies the configured service types to Postgres, for orders created in SQL.
//! * [`change`]: changes an order: decides on it and writes the change. [`seen`]: what a decision is based on. `commit`:
//!   commits one change. [`changed`]: the result, with the updates of Redis that follow.
//! * [`timer_sending`], [`timer_calls`]: calls to Redis for timers, in batches. [`unsent`], [`unsent_timers`]: orders
//!   whose timers Redis did not accept.
//! * [`order_store`]: loads and writes rows in batches. `writing`: writes one change, in a batch if possible. Besides
//!   it, only the test clock and erasures in SQL change rows of `orders`.
//! * [`start`]: starts dispatch of scheduled orders. [`reschedule`]: changes their pickup time.
//! * [`step`]: the common part of all timers of orders.
//! * [`accept`]: assigns an order to one of the drivers who accept it. `accept_gate` refuses the others; [`gate_views`]
//!   caches the answers of the gate.
//! * [`offers`]: live offers, and requests of apps that wait for them. [`fleet`]: drivers, the driver index,
//!   candidates, waiting orders. `freed_drivers`: drivers who may be free again.
//! * [`compensation`]: alerts when the end of an order cannot be written. [`payments`]: client of the payment service.
//! * [`query`]: timelines and single orders for people. [`search`]: paged lists for staff. [`scope`]: the filter of
//!   staff scopes. [`feed`]: steps of orders for producers.
//! * [`tracking`]: links with which customers follow their orders.
//! * [`test_clock`]: the test clock of `dispatchq dev`.
//! * [`late_work`]: refuses creations while due jobs are late.
//! * [`metrics`]: counters of changes. [`retrieval_log`]: log lines about missing job ids.

// Futures of handlers are nested deeper than the default limit.
#![recursion_limit = "256"]

pub mod accept;
pub(crate) mod accept_gate;
pub mod capability;
pub mod change;
pub mod changed;
pub(crate) mod commit;
pub mod compensation;
pub mod contents;
pub mod create;
pub mod created_answer;
pub mod details;
pub mod feed;
pub mod first_tries;
pub mod fleet;
pub(crate) mod freed_drivers;
pub mod gate_views;
pub mod kept;
pub mod late_work;
pub(crate) mod message_sending;
pub mod metrics;
pub mod offers;
pub mod order_store;
pub mod payments;
pub mod query;
pub mod reschedule;
pub mod retrieval_log;
pub mod scope;
pub mod search;
pub mod seen;
pub mod sent_contents;
pub mod service_types;
pub mod start;
pub mod step;
pub mod test_clock;
pub mod timer_calls;
pub mod timer_sending;
pub mod tracking;
pub mod unsent;
pub mod unsent_timers;
pub(crate) mod write_error;
pub(crate) mod writing;
