//! `dispatchq bench soak`: does anything grow, drift or slip when a worker runs for long?
//!
//! A producer enqueues so many jobs per second, each due at a random moment within the next minute, and one worker process
//! performs them. Once a minute it is told how late they were, what memory worker and Redis hold, and whether any job
//! ran early, never, or twice. The worker records metrics for Prometheus, as in production, for they might grow, too.
//!
//! * `run`: the soak from first to last. `producer`: who enqueues.
//! * [`worker`]: the worker process. `watch`: what it notes, in memory that does not grow, for that would be measured.
//! * `report`: a line per minute, and one JSON object.

mod producer;
mod report;
mod run;
mod watch;
pub mod worker;

pub use run::run;
