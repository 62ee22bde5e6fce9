//! Accounts: users of the company, API keys, sessions, sign-in of drivers, and sign-in with OpenID Connect.
//!
//! * [`capability`]: the struct through which other crates use this one.
//! * [`api_keys`]: keys, their roles, and lookup of one key. [`key_admin`]: creation, rotation and revocation.
//! * [`known_keys`]: in-memory cache of recently used keys. [`key_use`]: time of the last use of each key.
//! * [`users`]: people who receive messages. [`recorded`]: changes of keys and users with their audit record.
//! * [`sessions`]: sessions of the console. [`oidc`]: sign-in at an OpenID Connect provider. [`driver_links`]: one-time
//!   links of drivers. [`driver_sessions`]: sessions of the driver page.
//! * [`saved_filters`]: filters of the console that staff saved.
//! * [`request_limits`]: request limits per key and per address. [`staff_requests`]: client addresses of staff
//!   requests.

// The futures of handlers are nested deeper than the default limit.
#![recursion_limit = "256"]

pub mod api_keys;
pub mod capability;
pub mod driver_links;
pub mod driver_sessions;
pub mod key_admin;
pub mod key_use;
pub mod known_keys;
pub mod oidc;
pub mod recorded;
pub mod request_limits;
pub mod saved_filters;
pub mod sessions;
pub mod staff_requests;
pub mod users;
