//! The tests of API keys: permissions and the recorded actors.
//!
//! * `keys`: keys end in Postgres alone. `refused_keys`: hundreds of wrong keys, and keys that exceed their rate.
//! * `names`: one name belongs to one holder. `actors`: every change records a role, a person or program, and the key.

// Nested request futures exceed the default limit.
#![recursion_limit = "256"]

mod actors;
mod keys;
mod names;
mod refused_keys;
