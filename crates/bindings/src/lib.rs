//! Bindings: accounts at providers on which one transaction follows the other.
//! Design: docs/design/bindings.md.
//!
//! * [`capability`]: the struct that the other crates hold.
//! * [`commands`]: commands of people and programs. [`servers`], [`provider_hosts`]: servers of providers, their limits and addresses.
//! * [`change`]: the one way a row changes. [`follow`]: what follows a change. [`span`]: the fields of each log line.
//!   [`owner`]: the name of one write. [`error`]: why a change was refused.
//! * [`call`]: one call of a provider, from its claim to its answer. [`provider_client`]: the HTTP client. [`slots`]: the slots that
//!   a call needs. [`otp_seal`]: OTPs, encrypted until they are sent.
//! * [`store`]: bindings as rows, in batches.
//! * [`registry`]: the worker registry of the requirement.
//! * [`restore`]: jobs, slots and limits of bindings that Redis must have.
//! * [`explain`]: why a binding is in its state. [`list`]: lists of bindings and transactions.
//!
//! A job is a hint, the row decides. Each call is claimed in the row before it is made, so a binding never has two. The jobs are in
//! `workers/src`: cycle.rs, otp.rs, settle.rs.

// Futures of handlers are nested deeper than the default allows.
#![recursion_limit = "256"]

pub mod call;
pub mod capability;
pub mod change;
pub mod commands;
pub mod error;
pub mod explain;
pub mod follow;
pub mod list;
pub mod otp_seal;
pub mod owner;
pub mod provider_client;
pub mod provider_hosts;
pub mod registry;
pub mod restore;
pub mod servers;
pub mod slots;
pub mod span;
pub mod store;
