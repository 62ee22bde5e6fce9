//! The tests of orders that a partner serves: the real handlers, the real API as the target of callbacks, and the
//! simulated partner.
//!
//! * `arrivals`: partner events in every order of arrival.
//! * `callbacks`: accepted and rejected callbacks, and callbacks without a booking.
//! * `faults`: a partner that fails in every way. `failures`: orders that end without a job id.
//! * `payments`: payment reports of the producer.
//! * `recovery`: Redis loses jobs, jobs die, old orders are removed.
//! * `journey`: one order from its booking to its end, by real workers.
//! * `shuffled`: complete lives of orders whose events occur in random order.
//! * `retrieval`: the tests that the design of the job id retrieval names.
//! * `several`: two partners for one service type.
//! * `metrics`: metrics of partner orders. `told`: log lines, messages and order fields. `areas`: full areas.
//! * `throughput`: Postgres statements of many concurrent orders.

// Nested request futures exceed the default limit.
#![recursion_limit = "256"]

mod areas;
mod arrivals;
mod callbacks;
mod failures;
mod faults;
mod journey;
mod metrics;
mod payments;
mod recovery;
mod retrieval;
mod several;
mod shuffled;
mod throughput;
mod told;
