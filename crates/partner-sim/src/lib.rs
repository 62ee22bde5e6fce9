//! A taxi partner to dispatch to, with all its faults, as an HTTP server. docs/PARTNER.md is its contract.
//!
//! * [`options`], [`knobs`], `values`: what can be set, and how it is written.
//! * `fate`: what happens to a booking, and how its callbacks travel. Pure.
//! * `faults`: what goes wrong with requests. Pure.
//! * `ledger`, [`counters`]: the bookings, and what was seen so far. Pure.
//! * `callbacks`: what the partner tells us, signed. Pure.
//! * `timers`: everything that happens later, in one queue.
//! * `core`: the above, working together behind one lock that is never held across an await.
//! * `delivery`: sends callbacks, again until they are taken.
//! * `api`: what a partner answers. `control`: what only a simulation answers.
//! * [`seeded_rng`]: what simulations leave to chance.
//! * [`lines`]: connections that can be refused and cut.
//! * [`serving`]: errors, and who may call `/_sim`.
//! * [`server`]: starting and ending it.
//!
//! `values`, `seeded_rng`, `lines` and `serving` serve the simulated provider, too.
//!
//! All choices follow from the seed and a booking's reference, never from the order in which requests arrive.

mod api;
mod callbacks;
mod control;
mod core;
pub mod counters;
mod delivery;
mod fate;
mod faults;
pub mod knobs;
mod ledger;
pub mod lines;
pub mod options;
pub mod seeded_rng;
pub mod server;
pub mod serving;
mod timers;
pub mod values;

pub use control::SimulationReport;
pub use knobs::{OutageKind, PartnerKnobs};
pub use options::PartnerSimOptions;
pub use server::PartnerSim;
