//! All Redis I/O of the engine: the scripts as calls, their answers as enums. Needs Redis 6.2 or later.
//!
//! * `connect`: the connection and its timeouts.
//! * `script`: the Lua scripts and how they are called.
//! * `enqueue`: inserting jobs; `repair`, which puts back what is missing.
//! * `take`: leasing due jobs.
//! * `settle`: ending leases with an outcome.
//! * `lease`: renewing leases and handing them back.
//! * `epoch`: the proof that Redis still holds our data, and its rebuild.
//! * `heartbeat`: which replicas live, and how late jobs start.
//! * `inspect`: counting, listing and finding jobs; pausing queues.

mod client;
mod connect;
mod enqueue;
mod epoch;
mod error;
mod heartbeat;
mod inspect;
mod lease;
mod script;
mod settle;
mod take;

pub use client::{Clock, Store};
pub use connect::RedisConfig;
pub use enqueue::{Enqueued, Repaired};
pub use epoch::{Epoch, RebuildMarker};
pub use error::StoreError;
pub use heartbeat::{Heartbeat, LatenessCounts, LatenessSummary, WorkerEntry, WorkerInfo};
pub use inspect::{DeadRecord, JobDetail, JobEntry, JobState, QueueStats};
pub use lease::{Held, Renewed};
pub use settle::{End, Settle, Settled};
pub(crate) use take::SUSPECT_AT;
pub use take::{DeadJob, Leased, TakeMode, TakeRequest, Taken, Token};
