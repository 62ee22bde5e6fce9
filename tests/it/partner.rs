//! Orders served by a partner: the real handlers, the real API as the target of callbacks, and the simulated partner.
//!
//! * `world`: the three together, on moved or on real time.
//! * `arrivals`: what the partner says, in every order of arrival, taken by the real handlers.
//! * `callbacks`: which are taken, and what becomes of those without a booking.
//! * `faults`, `limits`: a partner that fails in every way, and what it bears.
//! * `payments`: what the producer says of the money.
//! * `recovery`: Redis loses jobs, jobs die, old orders go.
//! * `crashes`: processes that die at every side effect.
//! * `failures`: orders that end without a job id.
//! * `journey`: one order from its booking to its end, by real workers.
//! * `shuffled`: whole lives of real orders, in which everything happens in a random order.
//! * `retrieval`: the tests that the design of the job id retrieval names.
//! * `several`: two partners for one service type.
//! * `metrics`: what is counted of all this; `told`: what people see of it. `areas`: full ones.
//! * `throughput`: what many orders cost Postgres together.

mod areas;
mod arrivals;
mod callbacks;
mod crashes;
mod failures;
mod faults;
mod journey;
mod limits;
mod metrics;
mod payments;
mod recovery;
mod retrieval;
mod several;
mod shuffled;
mod throughput;
mod told;

use test_support::partnership::{self as world, Partnership};
