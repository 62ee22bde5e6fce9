//! Bindings: accounts at providers, on which one transaction follows the other.
//! Design: docs/design/bindings.md.
//!
//! * [`commands`]: what people and programs ask of a binding. [`servers`]: providers' servers and limits.
//! * [`change`]: the one way a row changes, and what follows. `follow`: who learns of it. `span`: what each line of the log names.
//!   `owner`: the name of one write. [`error`]: why a change was refused.
//! * [`cycle`]: what the jobs do. `call`: one call of a provider, from its claim to its answer. `slots`: the slots that a call needs.
//! * [`registry`]: the requirement's contract of workers.
//! * [`restore`]: what Redis must have of bindings: jobs, slots, limits.
//! * [`explain`]: why a binding is as it is.
//! * [`list`]: bindings and transactions as people look for them.
//!
//! A job is a hint, the row decides. Each call is claimed in the row before it is made, so that a binding never has two.

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
