//! All Redis I/O of the engine: the scripts as calls that return enums. Needs Redis 7.0 or later, for the flags of
//! scripts.
//!
//! * `address`: Redis addresses. `connect`: the connection. `manager`: settings of all connections, such as timeouts.
//! * `sentinel`: finds the primary, now and after a failover.
//! * `cluster`: finds the node of a slot. `hash_slot`: finds the slot of a key.
//! * `script`: the Lua scripts of the engine and their calls. `command`: commands and scripts of the capabilities.
//! * `enqueue`: inserts jobs, and repairs missing ones.
//! * `take`: leases due jobs. `leased`: the leased jobs and their token.
//! * `settle`: ends leases with an outcome.
//! * `lease`: renews leases and hands jobs back.
//! * `gone`: frees the slots of a process that has ended.
//! * `epoch`: the proof that Redis still has all jobs. `rebuild`: restores them. `horizon`: the jobs that may be taken
//!   during a rebuild.
//! * `heartbeat`: live replicas and the lateness of jobs.
//! * `inspect`: counts, lists and finds jobs; pauses queues.
//! * `operate`: cancels and reschedules single jobs.
//! * `dead`: lists, requeues, discards and restores dead jobs.
//! * `limit`: concurrency and rate limits shared by the fleet. `ended_permits`: permits until their slots are released.
//! * `slots`: slots that pass to the next job in line. `ended_slots`: slots to release.
//! * `slot_grants`: acquires slots.
//! * `slot_releases`: releases slots, many in one call. `release_queue`: slots until that call.
//! * `breaker`: circuit breakers shared by the fleet.
//! * `bounds`: bounds that several calls share.

mod address;
mod bounds;
mod breaker;
mod client;
mod cluster;
mod command;
mod connect;
mod dead;
mod ended_permits;
mod ended_slots;
mod enqueue;
mod epoch;
mod error;
mod gone;
mod hash_slot;
mod heartbeat;
mod horizon;
mod inspect;
mod lease;
mod leased;
mod limit;
mod manager;
mod operate;
mod rebuild;
mod release_queue;
mod script;
mod sentinel;
mod settle;
mod slot_grants;
mod slot_releases;
mod slots;
mod take;

pub use address::RedisConfig;
pub use breaker::{BreakerPolicy, BreakerState};
pub use client::{ScriptClock, Store};
pub use command::{Command, LuaScript, RedisCall};
pub use dead::{
    DeadCursor, DeadEntry, DeadFilter, DeadPage, DeadRecord, DiscardVerdict, InvalidCursor, RequeueVerdict,
    RestoreVerdict,
};
pub use ended_permits::Permit;
pub use ended_slots::EndedSlots;
pub use enqueue::{EnqueueVerdict, RepairVerdict};
pub use epoch::Epoch;
pub use error::StoreError;
pub use hash_slot::{key_slot, slots_of};
pub use heartbeat::{Heartbeat, LatenessCounts, LatenessSummary, QueueRuns, WorkerEntry, WorkerInfo};
pub use horizon::Takeable;
pub use inspect::{JobDetail, JobEntry, JobState, OldestDue, ParkedPlace, QueueStats};
pub use lease::{HeldLease, LeaseVerdict};
pub use leased::{LeaseToken, LeasedJob};
pub use limit::{AcquireVerdict, Limit};
pub use operate::{CancelVerdict, RescheduleVerdict};
pub use rebuild::{DueJob, RebuildMarker};
pub use settle::{LeaseEnd, SettleRequest, SettleVerdict};
pub use slot_grants::SlotVerdict;
pub use slots::{GroupSlots, OngoingWork, ParkVerdict, ReleaseVerdict, SlotHolder, SlotLimits, SlotStats, WaitingJob};
pub(crate) use take::SUSPECT_AT;
pub use take::{DeadJob, TakeAnswer, TakeErrands, TakeMode, TakeRequest};
