//! A durable queue of delayed jobs on Redis, and the runtime that performs them.
//! Design: docs/design/queue.md.
//!
//! Knows nothing of orders: it moves [`JobId`]s from *due* to *leased* to settled, and calls the handler registered for
//! a job's kind. A job runs at least once and never early; whatever dies, it runs again.
//!
//! # Layout
//!
//! * [`job`], [`outcome`], [`retry`]: what a job is, what a handler answers, when it runs again; from the crate `job-contract`.
//! * `keys`: every Redis key, with its type and lifetime.
//! * `life`: whether another process of this machine lives.
//! * `scripts/`: the Lua scripts; each moves jobs between states in one atomic, bounded step.
//! * [`store`]: the scripts as Rust calls, their answers as enums. All Redis I/O of the engine is here.
//! * [`shards`]: several stores as one queue.
//! * [`registry`]: job kind -> typed handler.
//! * `supervisor/`: takes, holds, extends, settles and hands back; one per process.
//! * `backend`: the supervisor's jobs as an apalis backend, its results as an apalis layer.
//! * [`runtime`]: puts the above together: [`Runtime::run`](runtime::Runtime::run) until told to stop.
//! * [`run_limited`], [`run_within_limits`]: performing work under limits that the whole fleet shares.
//! * [`run_with_slots`]: performing work with slots that are handed over.
//! * [`gate`]: the switch with which the process keeps its workers from taking jobs.
//!
//! What follows is the crate's README.
#![doc = include_str!("../README.md")]

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

pub use gate::Gate;
/// Of the crate `job-contract`, so that an application depends on this crate alone.
pub use job_contract::{
    DecodeError, Delivery, InvalidJobId, InvalidSlotNeed, Job, JobAddress, JobId, NewJob, Outcome, RetryPolicy,
    SlotGrant, SlotNeed, job, outcome, retry, slots,
};
pub use keys::Keys;
pub use life::ProcessLife;
pub use limited::{run_limited, run_within_limits};
pub use registry::Registry;
pub use runtime::{RunSummary, Runtime, RuntimeError};
pub use shards::{ShardCount, Shards};
pub use slotted::run_with_slots;
pub use store::{LeaseToken, LeasedJob, Limit, RedisConfig, ScriptClock, SettleRequest, Store, StoreError};
