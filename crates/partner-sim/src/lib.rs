//! A simulated taxi partner with injectable faults, as an HTTP server. docs/PARTNER.md is its contract.
//!
//! * [`options`], [`knobs`], `values`: settings and their syntax.
//! * `fate`: fate of a booking and of its callbacks. Pure.
//! * `faults`: faults of requests. Pure.
//! * `ledger`, [`counters`]: bookings and counters. Pure.
//! * `callbacks`: signed callbacks. Pure.
//! * `timers`: one queue for all later actions.
//! * `core`: combines these modules behind one lock that is never held across an await.
//! * `delivery`: sends and retries callbacks.
//! * `api`: the API of the partner. `control`: the control API of the simulation.
//! * [`seeded_rng`]: reproducible random choices.
//! * [`lines`]: connections that can be refused and cut.
//! * [`serving`]: error answers, and the loopback check of `/_sim`.
//! * [`server`]: start and end of the simulation.
//!
//! The simulated provider also uses `values`, `seeded_rng`, `lines` and `serving`.
//!
//! All choices follow from the seed and a booking's reference, never from the order of requests.

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
