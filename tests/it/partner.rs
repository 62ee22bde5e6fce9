//! Orders served by a partner: the real handlers, the real API as the target of callbacks, and the simulated partner.
//!
//! * `world`: the three together, on moved or on real time.
//! * `journey`: one order from its booking to its end, by real workers.
//! * `sequences`: random sequences of the pure decisions, applied by `model` and held to `laws`.
//! * `retrieval`: the tests that the design of the job id retrieval names.

mod journey;
mod laws;
mod model;
mod retrieval;
mod sequences;
mod world;

use world::{Partnership, reference};
