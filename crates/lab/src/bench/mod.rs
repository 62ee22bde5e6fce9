//! `dispatchq bench`: what the queue engine does on this machine, beside what it is meant to do.
//!
//! Redis is a private server with the settings of production (append-only file, fsynced every second), jobs are those of
//! `jobs`, and workers are processes of this very binary that run the real `workers::Runtime` with a handler that does
//! nothing. Every figure is the median of some rounds; docs/BENCHMARKS.md says what each one means.
//!
//! * [`options`]: the command line, and how much of everything there is.
//! * `run`: the rounds, from first to last.
//! * `throughput`, `lateness`, `pickup`, `herd`, `memory`, `idle`: one file per figure.
//! * [`worker`]: the worker process that is measured. `child`: starts one and reads what it saw. `runs`: what it notes.
//! * `stage`: the private Redis. `redis_info`: what it says of itself. `timers`: the jobs.
//! * `peer`: another queue's program, which takes its turn in every round.
//! * [`accept`]: another matter: many drivers press accept at once.
//! * [`admission`]: how quickly a full area says so, and whether it is ever overfull.
//! * [`chaos`]: everything fails while orders are created; was anybody told what is not so?
//! * [`upgrade`]: two versions side by side, through an upgrade and a rollback, with the clients of `chaos`.
//! * [`cluster`]: a Redis Cluster whose nodes fail and whose shards change, with the clients of `chaos`.
//! * `played`: what these three have in common.
//! * [`console`]: what pages take beside very many orders, and whether those who look make dispatch late.
//! * [`rebuild`]: how soon all timers are back after a flush, and how soon the fleet works again.
//! * [`orders`]: and another: whole orders, served by a simulated partner.
//! * [`bindings`]: how many cycles a second bindings run, and what bindings cost that do nothing.
//! * `collector`: where the traces of a run go. `prometheus`: what one beside a run sees. `machine`: where it all runs. `processor`: what processes used of it.
//! * `spread`: minimum, median, maximum, percentiles. `tables`: for people. `report`: goals, table, JSON.
//! * `statement_counts`: what Postgres counts.

pub mod accept;
pub mod admission;
pub mod bindings;
pub mod chaos;
mod child;
pub mod cluster;
mod collector;
pub mod console;
mod herd;
mod idle;
mod lateness;
mod lives;
mod machine;
mod memory;
pub mod options;
pub mod orders;
mod peer;
mod pickup;
mod played;
mod processor;
mod progress;
mod prometheus;
pub mod rebuild;
mod redis_info;
mod report;
mod run;
mod runs;
mod spread;
mod stage;
mod statement_counts;
mod tables;
mod throughput;
mod timers;
pub mod upgrade;
pub mod worker;

pub use options::{QueueOptions, WorkerOptions};
pub use run::run;
