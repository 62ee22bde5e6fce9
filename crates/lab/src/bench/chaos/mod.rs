//! `dispatchq bench chaos`: everything fails, one thing after another, while orders are created, and afterwards what clients
//! were told is compared with the tables.
//!
//! It runs on a `testbed` with two `serve`, three `work`, private servers behind proxies and a simulated partner. The seed
//! fixes which faults are made when, and what producers and drivers want; how all that interleaves is the machine's.
//!
//! * [`options`]: the command line. `fault`: what can fail. `schedule`: what fails when. All pure.
//! * `client`: requests of clients who want an answer. `hang_up`: requests of clients who do not wait for one. `crowd`: what
//!   all clients share. `producers`, `drivers`, `callers`: what each of them does.
//! * `claims`: what clients were told. `receivers`: webhook receivers of offers and alerts, and what arrived there.
//! * `stage`: the installation, and time that passes there. `inflict`: begins and ends a fault; `on_postgres`, `on_redis` and
//!   `on_clients` know how.
//! * `watch`: lateness by 5 s windows, from the workers' metrics. `recovery`: how soon after a fault all is as before.
//! * `verify`: claims, receivers and history against the tables. `run`: from first to last. `report`: tables and JSON.
//!
//! `bench upgrade`, which makes no fault, has the same clients and receivers, `watch` and `verify`; `bench cluster` has them, too, and
//! looks for timers as `recovery` does. `played` has what runs of all three do alike.

mod callers;
pub(super) mod claims;
pub(super) mod client;
pub(super) mod crowd;
mod drivers;
mod fault;
mod hang_up;
mod inflict;
mod on_clients;
mod on_postgres;
mod on_redis;
pub mod options;
pub(super) mod producers;
pub(super) mod receivers;
pub(super) mod recovery;
mod report;
mod run;
mod schedule;
mod stage;
pub(super) mod verify;
pub(super) mod watch;

pub use options::ChaosOptions;
pub use run::run;
