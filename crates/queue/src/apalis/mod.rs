//! The queue as a backend of apalis: `WorkerBuilder::new("name").backend(storage).build(handler)`.
//!
//! [`QueueStorage`] reads and writes one queue. Its worker has the guarantees of the engine: leases that are renewed, due
//! times in milliseconds of Redis' clock, isolation of harmful jobs, and dead jobs that are kept with their error.
//!
//! # Layout
//!
//! * `config`: settings of a storage. `error`: errors of its calls. `storage`: the type and its constructors.
//! * `task`: tasks as jobs and jobs as tasks. `task_id`: ids of both.
//! * `backend`: the worker's side. `run`: the engine's loops behind it. `checked`: decodes arguments.
//! * `settle_layer`: settles each lease with the handler's result.
//! * `sink`, `push_buffer`: pushes tasks. `fetch`, `list_tasks`, `list_queues`, `list_workers`, `metrics`, `statistics`:
//!   what apalis-board asks for.
//! * `reschedule`, `vacuum`: the traits of the same names. `stored_result`: results in Redis. `results`: waits for them.
//!
//! The traits' methods box the calls to Redis. Otherwise the types of their callers would be nested deeper than the
//! compiler's default limit.

mod backend;
mod checked;
mod config;
mod error;
mod fetch;
mod list_queues;
mod list_tasks;
mod list_workers;
mod metrics;
mod push_buffer;
mod reschedule;
mod results;
mod run;
mod settle_layer;
mod sink;
mod statistics;
mod storage;
mod stored_result;
mod task;
mod task_id;
mod vacuum;

pub use checked::{Checked, CheckedBackend};
pub use config::QueueConfig;
pub use error::StorageError;
pub use settle_layer::{SettleLayer, SettleService};
pub use storage::QueueStorage;
pub use task::RunAfter;
