//! Who may use the system: the company's users, and the keys that programs authenticate with.
//!
//! * [`api_keys`]: keys, their roles, and looking one up. [`key_admin`]: issuing, rotating and revoking them.
//! * [`known_keys`]: keys that were looked up lately. [`key_use`]: when each was last used.
//! * [`users`]: the people whom messages reach.
//! * [`staff_actions`]: the record of what staff did. [`recorded`]: keys and users changed with their record.
//! * [`sessions`]: who is signed in to the console. [`staff_requests`]: from where staff ask for changes.

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
