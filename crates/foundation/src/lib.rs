//! Shared building blocks of the capabilities. This crate changes no orders, bindings or areas.
//!
//! * [`core`]: connections, clock and randomness of a process. [`shard_map`]: number of queue shards. [`queue_pauses`]:
//!   queues that an operator paused. [`worker_drains`]: workers that an operator drains. [`worker_gate`]: when a worker
//!   takes no jobs. [`staff_actions`]: audit record of staff actions. [`strict_json`]: JSON of imports
//!   and requests.
//! * [`batch`]: batching. [`crash`]: points at which tests kill a process. [`loops`]: background loops with a watchdog.
//! * [`config`]: settings of these modules, secrets, and configuration errors. [`error`]: the error type of services.
//! * [`db`]: Postgres. [`dead_letter_rows`]: the table of dead jobs. [`idempotency_rows`]: idempotency keys of
//!   requests.
//! * [`outbound`]: HTTP requests to other systems. [`poll_board`]: requests that wait for a change. [`redis_keys`]: all Redis keys except those of the engine.
//! * [`system`]: clock and random generator of this machine. [`telemetry`]: logs, metrics and traces of a process.
//!   [`traces`]: one trace per order. [`work_slice`]: time of one request for long work.

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
pub mod poll_board;
pub mod queue_pauses;
pub mod redis_keys;
pub mod shard_map;
pub mod staff_actions;
pub mod strict_json;
pub mod system;
pub mod telemetry;
pub mod traces;
pub mod work_slice;
pub mod worker_drains;
pub mod worker_gate;
