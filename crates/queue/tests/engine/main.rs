//! The engine against a real Redis. Scripts are tested with a clock that is moved by hand; only the runtime's tests wait
//! for real time, and never for correctness.

mod breaker;
mod cluster;
mod dead;
mod enqueue;
mod epoch;
mod gone;
mod healing;
mod horizon;
mod inspect;
mod lease;
mod limit;
mod metrics;
mod model;
mod operate;
mod outage;
mod poison;
mod process;
mod registry;
mod runtime;
mod sentinel;
mod settle;
mod shards;
mod slot_grants;
mod slot_suspects;
mod slots;
mod slotted;
mod support;
mod suspects;
mod take;
mod tls;
mod upgrade;
