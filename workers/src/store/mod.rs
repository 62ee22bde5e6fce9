//! All Redis I/O of the engine: the scripts as calls, their answers as enums. Needs Redis 7.0 or later, for the flags of scripts.
//!
//! * `connect`: the connection and its timeouts.
//! * `sentinel`: finding the primary, now and after a failover.
//! * `script`: the Lua scripts and how they are called.
//! * `enqueue`: inserting jobs; `repair`, which puts back what is missing.
//! * `take`: leasing due jobs.
//! * `settle`: ending leases with an outcome.
//! * `lease`: renewing leases and handing them back.
//! * `epoch`: the proof that Redis still holds our data, and its rebuild.
//! * `heartbeat`: which replicas live, and how late jobs start.
//! * `inspect`: counting, listing and finding jobs; pausing queues.
//! * `operate`: cancelling and rescheduling single jobs.
//! * `dead`: listing, requeueing, discarding and restoring dead letters.
//! * `limit`: concurrency and rate limits shared by the fleet.
//! * `breaker`: circuit breakers shared by the fleet.

mod breaker;
mod client;
mod connect;
mod dead;
mod enqueue;
mod epoch;
mod error;
mod heartbeat;
mod inspect;
mod lease;
mod limit;
mod operate;
mod script;
mod sentinel;
mod settle;
mod take;

pub use breaker::{BreakerPolicy, BreakerState};
pub use client::{Clock, Store};
pub use connect::RedisConfig;
pub use dead::{
    DeadCursor, DeadEntry, DeadFilter, DeadPage, DeadRecord, Discarded, InvalidCursor, Requeued, RestoredDead,
};
pub use enqueue::{Enqueued, Repaired};
pub use epoch::{Epoch, RebuildMarker};
pub use error::StoreError;
pub use heartbeat::{Heartbeat, LatenessCounts, LatenessSummary, WorkerEntry, WorkerInfo};
pub use inspect::{JobDetail, JobEntry, JobState, QueueStats};
pub use lease::{Held, Renewed};
pub use limit::{Acquired, Limit, Permit};
pub use operate::{Cancelled, Rescheduled};
pub use settle::{End, Settle, Settled};
pub(crate) use take::SUSPECT_AT;
pub use take::{DeadJob, Leased, TakeMode, TakeRequest, Taken, Token};
