//! `dispatchq bench upgrade`: two versions serve orders on one database and one Redis, through an upgrade, a rollback and the next
//! upgrade, and afterwards what clients were told is compared with the tables.
//!
//! The old version is another binary, this one the new. The clients are those of `chaos`: they ask again until they are answered, and
//! keep the books. No fault is made, so no answer may be a failure.
//!
//! * [`options`]: the command line. `phases`: who migrates, joins and leaves when. Both pure.
//! * `stage`: servers, processes of both versions, and where clients send their requests.
//! * `run`: from first to last. `report`: table and JSON.

pub mod options;
mod phases;
mod report;
mod run;
mod stage;

pub use options::UpgradeOptions;
pub use run::run;
