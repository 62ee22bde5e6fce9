//! Recovery of Redis. Postgres is the source of truth, and Redis caches the timers. The reconciler restores what Redis
//! has lost. Dead letters are restored by `dead_letters::mirror`. Design: docs/design/timers-and-reconciler.md.
//!
//! * [`reconciler`]: the loop, which one process at a time runs.
//! * [`repair`]: repair of single timers, with the rows of `pages`. [`overdue`]: ends orders far past their lifetime.
//! * [`rebuild`]: restores all timers after Redis lost its data or was restarted. `earliest`: sorts timers by due time.
//! * [`shards`]: state of each shard, and the end of a change of the number of shards.

mod earliest;
pub mod overdue;
pub(crate) mod pages;
pub mod rebuild;
pub mod reconciler;
pub mod repair;
pub mod shards;

pub use repair::RepairReport;
