//! `dispatchq bench accept`: many drivers press accept for the same order at the same moment, over HTTP.
//!
//! First with a healthy Redis, then while Redis is stopped and started, flushed, and slow.
//!
//! * [`options`]: the command line. `stage`: servers, drivers, orders that are offered to all of them.
//! * `race`: one order's race. `answers`: the server's time for a refusal. `run`: all races. `report`: table and JSON. `goals`: bounds of
//!   figures.

mod answers;
mod goals;
pub mod options;
mod race;
mod report;
mod run;
mod stage;

pub use options::AcceptOptions;
pub use run::run;
