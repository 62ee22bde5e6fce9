//! A provider of transactions, and the judge of those who call it, as an HTTP server. docs/PROVIDER.md is its contract.
//!
//! * [`options`], [`knobs`]: what can be set.
//! * [`judge`]: what callers did: calls open at once, overlaps, gaps, keys used twice. Pure.
//! * `ledger`: accounts and transactions. Pure.
//! * `fate`: what goes wrong with a call. Pure.
//! * `core`: the above, working together behind one lock that is never held across an await.
//! * `api`: what a provider answers. `control`: what only a simulation answers.
//! * [`server`]: starting and ending it.
//!
//! What happens to a transaction follows from the seed and its id, never from the order in which calls arrive.

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
