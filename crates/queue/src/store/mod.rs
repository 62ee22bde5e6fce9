//! All Redis I/O of the engine: the scripts as calls, their answers as enums. Needs Redis 7.0 or later, for the flags of scripts.
//!
//! * `address`: where Redis is. `connect`: the connection to it. `manager`: what all connections share, timeouts first.
//! * `sentinel`: finding the primary, now and after a failover.
//! * `cluster`: finding the node of a slot. `hash_slot`: finding the slot of a key.
//! * `script`: the Lua scripts and how they are called.
//! * `enqueue`: inserting jobs; `repair`, which puts back what is missing.
//! * `take`: leasing due jobs. `leased`: the leased jobs and their token.
//! * `settle`: ending leases with an outcome.
//! * `lease`: renewing leases and handing them back.
//! * `gone`: handing back what a process held that is gone.
//! * `epoch`: the proof that Redis still holds our data. `rebuild`: putting it back. `horizon`: what may be taken meanwhile.
//! * `heartbeat`: which replicas live, and how late jobs start.
//! * `inspect`: counting, listing and finding jobs; pausing queues.
//! * `operate`: cancelling and rescheduling single jobs.
//! * `dead`: listing, requeueing, discarding and restoring dead letters.
//! * `limit`: concurrency and rate limits shared by the fleet. `ended_permits`: permits until their slots are given back.
//! * `slots`: slots that are handed over to the next job in line. `ended_slots`: slots that go back.
//! * `slot_grants`: asking for slots.
//! * `slot_releases`: returning slots, many in one call. `release_queue`: slots until that call.
//! * `breaker`: circuit breakers shared by the fleet.
//! * `bounds`: bounds that several calls share.

mod address;
mod bounds;
mod breaker;
mod client;
mod cluster;
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
pub use inspect::{JobDetail, JobEntry, JobState, ParkedPlace, QueueStats};
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
