//! What every capability uses. It changes no orders, bindings or areas.
//!
//! * [`core`]: connections, clock and randomness of a process. [`shard_map`]: how many shards the queue has. [`queue_pauses`]: queues that
//!   an operator stopped. [`staff_actions`]: the record of what staff did. [`strict_json`]: JSON of imports and requests.
//! * [`batch`]: work that is done together. [`crash`]: points at which tests kill a process. [`loops`]: background loops with a watchdog.
//! * [`config`]: the settings of these modules, secrets, and errors of settings. [`error`]: why a service could not do its work.
//! * [`db`]: Postgres. [`dead_letter_rows`]: the table of jobs that were given up. [`idempotency_rows`]: keys of requests.
//! * [`outbound`]: HTTP requests to other systems. [`redis_keys`]: every Redis key that is not the engine's.
//! * [`system`]: this machine's clock and generator. [`telemetry`]: logs, metrics and traces of a process. [`traces`]: a trace for each order.

pub mod batch;
pub mod config;
pub mod core;
pub mod crash;
pub mod db;
pub mod dead_letter_rows;
pub mod error;
pub mod idempotency_rows;
pub mod loops;
pub mod outbound;
pub mod queue_pauses;
pub mod redis_keys;
pub mod shard_map;
pub mod staff_actions;
pub mod strict_json;
pub mod system;
pub mod telemetry;
pub mod traces;
