//! Tests of the engine with a real Redis. Script tests set the clock by hand. Only the runtime tests wait in real time,
//! and never to decide correctness.

mod breaker;
mod cluster;
mod dead;
mod enqueue;
mod epoch;
mod examples;
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
mod storage;
mod support;
mod suspects;
mod take;
mod tls;
mod upgrade;
