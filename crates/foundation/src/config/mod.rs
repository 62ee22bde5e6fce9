//! Settings for Postgres, Redis, logs and traces, and the parts that all settings share: addresses, secrets, errors.

pub mod address;
pub mod database;
pub mod error;
pub mod log;
pub mod redis;
pub mod secret;
pub mod traces;
