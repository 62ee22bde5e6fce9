//! Bindings: accounts at providers. Each runs one transaction after another. Design: docs/design/bindings.md.
//!
//! * [`capability`]: the struct through which other crates use this one.
//! * [`commands`]: commands of people and programs. [`servers`], [`provider_hosts`]: servers of providers, their limits
//!   and addresses.
//! * [`change`]: the only way to change a row. [`follow`]: consequences of a change. [`span`]: fields of the log lines.
//!   [`owner`]: unique name of a write. [`error`]: reasons why a change is refused.
//! * [`call`]: one call to a provider, from its claim to its answer. [`provider_client`]: the HTTP client. [`slots`]:
//!   the slots that a call needs. [`otp_seal`]: encryption of OTPs until they are sent.
//! * [`store`]: rows of bindings, read and written in batches.
//! * [`registry`]: the worker registry of the requirement.
//! * [`restore`]: jobs, slots and limits that Redis must have for bindings.
//! * [`explain`]: the reason for a binding's state. [`list`]: lists of bindings and transactions.
//!
//! A job is a hint; the row decides. Each call is claimed in the row before it is made, so a binding never has two open
//! calls. The jobs are in `workers/src`: cycle.rs, otp.rs, settle.rs.

// The futures of handlers are nested deeper than the default limit.
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
