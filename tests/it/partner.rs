//! Orders served by a partner: the real handlers, the real API as the target of callbacks, and the simulated partner.
//!
//! * `world`: the three together, on moved or on real time.
//! * `journey`: one order from its booking to its end, by real workers.

mod journey;
mod world;

use world::{Partnership, reference};
