//! A durable queue of delayed jobs on Redis, and the runtime that runs them. Design: docs/design/queue.md.
//!
//! The engine knows nothing of orders. It moves [`JobId`]s from *due* to *leased* to settled, and calls the handler
//! that is registered for a job's kind. A job runs at least once and never early. If its worker or Redis dies, it runs
//! again.
//!
//! # Layout
//!
//! * [`job`], [`outcome`], [`retry`]: the job, the result of a handler and the retry policy; from the crate
//!   `job-contract`.
//! * `keys`: every Redis key, with its type and lifetime.
//! * `life`: whether another process on this machine is alive.
//! * `scripts/`: the Lua scripts; each moves jobs between states in one atomic, bounded step.
//! * [`store`]: the scripts as Rust calls that return enums. It does all Redis I/O of the engine.
//! * [`shards`]: several stores as one queue.
//! * [`registry`]: maps a job kind to its typed handler.
//! * `supervisor/`: takes, tracks, extends, settles and hands back jobs; one supervisor per process.
//! * `backend`: passes the supervisor's jobs to apalis and the handlers' results back.
//! * [`runtime`]: combines these modules; [`Runtime::run`](runtime::Runtime::run) runs until it is cancelled.
//! * [`apalis`](crate::apalis): the queue as a backend of apalis.
//! * [`run_limited`], [`run_within_limits`]: run work under limits that the whole fleet shares.
//! * [`run_with_slots`]: runs work with slots that one job hands over to the next.
//! * [`gate`]: a switch that stops the process from taking jobs.
//!
//! The crate's README follows.
#![doc = include_str!("../README.md")]

pub mod apalis;
pub mod gate;
pub mod registry;
pub mod runtime;
pub mod shards;
pub mod store;

mod backend;
mod keys;
mod life;
mod limited;
mod slotted;
mod supervisor;

pub use self::apalis::{QueueConfig, QueueStorage, RunAfter, StorageError};
pub use gate::Gate;
/// Re-exported from `job-contract`, so that an application needs only this crate.
pub use job_contract::{
    DecodeError, Delivery, InvalidJobId, InvalidSlotNeed, Job, JobAddress, JobId, NewJob, Outcome, RetryPolicy,
    SlotGrant, SlotNeed, job, outcome, retry, slots,
};
pub use keys::Keys;
pub use life::ProcessLife;
pub use limited::{run_limited, run_within_limits};
pub use registry::Registry;
pub use runtime::{Runtime, RuntimeError};
pub use shards::{ShardCount, Shards};
pub use slotted::run_with_slots;
pub use store::{
    Command, LeaseToken, LeasedJob, Limit, LuaScript, RedisCall, RedisConfig, ScriptClock, SettleRequest, Store,
    StoreError,
};
pub use supervisor::RunSummary;
