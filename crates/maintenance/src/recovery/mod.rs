//! Postgres is the truth, Redis a cache of timers. The reconciler puts back what Redis lost. (Dead letters: see
//! `dead_letters::mirror`.)
//! Design: docs/design/timers-and-reconciler.md.
//!
//! * [`reconciler`]: when to look, and one at a time.
//! * [`repair`]: what a look does, with the rows of `pages`. [`overdue`]: orders far past their lifetime are ended.
//! * [`rebuild`]: Redis has lost everything, or was restarted; `earliest`: its timers by due time.
//! * [`shards`]: each shard by itself: what it needs, and the end of a change of their number.

mod earliest;
pub mod overdue;
mod pages;
pub mod rebuild;
pub mod reconciler;
pub mod repair;
pub mod shards;

pub use repair::RepairReport;
