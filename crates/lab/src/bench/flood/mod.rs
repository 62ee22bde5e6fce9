//! `dispatchq bench flood`: what clients with good keys notice of a flood.
//!
//! Good requests come at a steady rate, first alone, then beside a flood from another address, then beside a flood from their
//! own: many clients share one address behind a router. The flood is wrong keys by the thousand and sockets that say nothing.
//! `serve` is a process of this very binary with the configuration as shipped, on servers of its own.
//!
//! * [`options`]: the command line. `clients`: the good ones. `flood`: the others. `run`: the phases. `report`: table and JSON.

mod clients;
#[expect(clippy::module_inception, reason = "the folder is named after what it measures")]
mod flood;
pub mod options;
mod report;
mod run;

pub use options::FloodOptions;
pub use run::run;
