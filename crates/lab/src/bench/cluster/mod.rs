//! `dispatchq bench cluster`: orders on a Redis Cluster of three masters and three replicas whose nodes fail, and whose queue is cut
//! into more and fewer shards, while orders go on. Afterwards what clients were told is compared with the tables.
//!
//! The clients are those of `chaos`: they ask again until they are answered, and keep the books. One thing is done in each phase.
//!
//! * [`options`]: the command line. `phases`: what is done when, with how many shards. Both pure.
//! * `nodes`: the six nodes as an operator sees and moves them. `shard_command`: `dispatchq shards`, if this binary has it.
//! * `stage`: the installation, and time that passes there. `steps`: does what a phase asks for.
//! * `lateness`: jobs by how late they started, kept over flushes. `verdict`: what was lost, doubled or early.
//! * `run`: from first to last. `report`: table and JSON.

mod lateness;
mod nodes;
pub mod options;
mod phases;
mod report;
mod run;
mod shard_command;
mod stage;
mod steps;
mod verdict;

pub use options::ClusterOptions;
pub use run::run;
