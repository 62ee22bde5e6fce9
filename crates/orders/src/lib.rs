//! Orders: the rows, and the one way they change. What they are and every decision on them is in [`model::order`].
//!
//! * [`update`]: changes an order on request, and enqueues what follows.
//! * [`unsent`]: orders whose timers Redis did not take.
//! * [`commit`]: decides on an order and has the change written; what follows a commit. [`store`]: loads and writes rows; the only code
//!   that writes to `orders`.
//! * `freed_drivers`: drivers who may be free again, for those who look for orders that wait.
//! * [`accept`]: one order, one driver, however many press accept; `accept_gate` sends all but one away at once.
//! * [`seen`]: an order as it was read a moment ago, for what is decided after a question to another server.
//! * [`step`]: what every timer of an order has in common.
//! * [`create`]: how an order comes into being.
//! * [`query`]: reads for people: lists and timelines. [`search`]: lists for staff, page by page.
//! * [`metrics`]: counters of what changes. `retrieval_log`: what the log says of a job id that does not come.

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
