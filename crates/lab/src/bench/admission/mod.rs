//! `dispatchq bench admission`: how quickly a full area says so, and whether it is ever overfull.
//!
//! API, producers and private servers share this machine. Advice is asked over connections that stay open: about areas with
//! room, then about full areas, whose answers name areas nearby. The burst asks about the full areas. It is the incident that
//! the requirement on server busy names: 77,000 requests within ten seconds. Creations are those of 64 producers at once
//! against a threshold of 100, while orders are cancelled and Redis is flushed once.
//!
//! * [`options`]: the command line. `stage`: servers, API, and a thousand areas.
//! * `advice`: questions, steady and all at once. `creations`: orders for an area with little room.
//! * `run`: one after the other. `report`: table and JSON.

mod advice;
mod creations;
pub mod options;
mod report;
mod run;
pub(super) mod stage;

pub use options::AdmissionOptions;
pub use run::run;
