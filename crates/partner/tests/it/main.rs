//! The tests of orders served by a partner: the real handlers, the real API as the target of callbacks, and the simulated partner.
//!
//! * `arrivals`: what the partner says, in every order of arrival, taken by the real handlers.
//! * `callbacks`: which are taken, and what becomes of those without a booking.
//! * `faults`: a partner that fails in every way. `failures`: orders that end without a job id.
//! * `payments`: what the producer says of the money.
//! * `recovery`: Redis loses jobs, jobs die, old orders go.
//! * `journey`: one order from its booking to its end, by real workers.
//! * `shuffled`: whole lives of real orders, in which everything happens in a random order.
//! * `retrieval`: the tests that the design of the job id retrieval names.
//! * `several`: two partners for one service type.
//! * `metrics`: what is counted of all this; `told`: what people see of it. `areas`: full ones.
//! * `throughput`: what many orders cost Postgres together.

// Futures of requests are nested deeper than the default allows.
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
