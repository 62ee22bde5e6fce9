//! `dispatchq bench scarcity`: many orders wait, few drivers drive. What does waiting cost, and how soon has a driver the next order?
//!
//! `serve` and `work` are processes with the configuration as shipped; drivers take part over HTTP. Postgres counts statements and
//! rows. Orders are created before the measurement begins, and all have been searched for once.
//!
//! * [`options`]: the command line. `stage`: servers, drivers, orders. `trips`: what drivers do. `counts`: what Postgres says.
//!   `run`: the measurement, from first to last. `report`: text and JSON.
//!
//! `bench console` has the same drivers.

mod counts;
pub mod options;
mod report;
mod run;
pub(super) mod stage;
pub(super) mod trips;

pub use options::ScarcityOptions;
pub use run::run;
