//! `dispatchq bench`: benchmarks on private servers. docs/BENCHMARKS.md explains the figures.
//!
//! Each benchmark is a set of options that implements [`frame::Measure`]. It sets up servers, runs, and returns
//! figures, which [`frame`] prints. Speed is reported but does not fail a run; a violated guarantee does.
//!
//! * [`queue`]: the queue engine. [`accept`]: many drivers accept at once. [`admission`]: admission to areas.
//! * [`orders`]: whole orders, served by a simulated partner or own drivers. [`bindings`]: cycles on a simulated
//!   provider.
//! * [`chaos`]: all faults. [`upgrade`]: two versions side by side. [`cluster`]: a Redis Cluster. `played`: shared
//!   parts of these three.
//! * [`rebuild`]: a flush with many open orders. [`console`]: pages with many orders and viewers.
//! * `receivers`: webhook receivers. `collector`: receiver of traces. `prometheus`: a Prometheus that scrapes a run.
//! * `machine`, `processor`: memory and CPU time. `redis_info`: statistics of Redis. `spread`: percentiles.

pub mod accept;
pub mod admission;
pub mod bindings;
pub mod chaos;
pub mod cluster;
mod collector;
pub mod console;
pub mod frame;
mod machine;
pub mod orders;
mod played;
mod processor;
mod prometheus;
pub mod queue;
pub mod rebuild;
mod receivers;
mod redis_info;
pub(crate) mod spread;
pub mod upgrade;
