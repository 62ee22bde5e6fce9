//! A simulated provider of transactions that judges its callers, as an HTTP server. docs/PROVIDER.md is its contract.
//!
//! * [`options`], [`knobs`]: settings.
//! * [`judge`]: records what callers do: open calls, overlaps, gaps, repeated keys. Pure.
//! * `ledger`: accounts and transactions. Pure.
//! * `fate`: fates of transactions and faults of calls. Pure.
//! * `core`: combines these modules behind one lock that is never held across an await.
//! * `api`: the API of the provider. `control`: the control API of the simulation.
//! * [`server`]: start and end of the simulation.
//!
//! A transaction's fate follows from the seed and its id, never from the order of calls.

mod api;
mod control;
mod core;
mod fate;
pub mod judge;
pub mod knobs;
mod ledger;
pub mod options;
pub mod server;

pub use control::ProviderReport;
pub use judge::JudgeCounters;
pub use knobs::ProviderKnobs;
pub use options::ProviderSimOptions;
pub use server::ProviderSim;
