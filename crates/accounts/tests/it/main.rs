//! The tests of API keys: who may do what, and who did it.
//!
//! * `keys`: keys come to an end, by Postgres alone. `refused_keys`: wrong keys by the hundred, and keys that ask too often.
//! * `names`: one name stands for one holder. `actors`: every change names a role, a person or program, and the key.

// Futures of requests are nested deeper than the default allows.
#![recursion_limit = "256"]

mod actors;
mod keys;
mod names;
mod refused_keys;
