//! The tests of API keys and of the sign-in of drivers: permissions and the recorded actors.
//!
//! * `keys`: keys end in Postgres alone. `refused_keys`: hundreds of wrong keys, and keys that exceed their rate.
//! * `names`: one name belongs to one holder. `actors`: every change records a role, a person or program, and the key.
//! * `driver_links`: one-time links and sessions of drivers.

// Nested request futures exceed the default limit.
#![recursion_limit = "256"]

mod actors;
mod driver_links;
mod keys;
mod names;
mod refused_keys;
