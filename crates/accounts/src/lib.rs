//! Accounts: users of the company, API keys, sessions, and sign-in with OpenID Connect.
//!
//! * [`capability`]: the struct that the other crates hold.
//! * [`api_keys`]: keys, their roles, and looking one up. [`key_admin`]: issuing, rotating and revoking them.
//! * [`known_keys`]: recently used keys, kept in memory. [`key_use`]: when each key was last used.
//! * [`users`]: people who receive messages. [`recorded`]: changes of keys and users with their audit record.
//! * [`sessions`]: sessions of the console. [`oidc`]: sign-in at a provider of OpenID Connect.
//! * [`request_limits`]: limits of requests per key and per address. [`staff_requests`]: the addresses that staff requests came from.

// Futures of handlers are nested deeper than the default allows.
#![recursion_limit = "256"]

pub mod api_keys;
pub mod capability;
pub mod key_admin;
pub mod key_use;
pub mod known_keys;
pub mod oidc;
pub mod recorded;
pub mod request_limits;
pub mod sessions;
pub mod staff_requests;
pub mod users;
