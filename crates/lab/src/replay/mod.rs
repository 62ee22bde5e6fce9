//! `dispatchq replay`: replays recorded rides on the real system at high speed, and checks the history.
//!
//! It runs on a `testbed`. Only the drivers are simulated: own drivers, or a partner. `--speed` divides the durations
//! of orders and of the simulated drivers, but not those of machines.
//!
//! * [`options`]: the command line.
//! * `columns`, `rides`, `zones`, `sample`: the input data. Dirty rows are skipped and counted.
//! * [`hours`]: a ride file as input of `area advise`, and for testing its proposal.
//! * `plan`: the orders and their times. `choices`: decisions of drivers. Both pure.
//! * `supply`: own drivers or a partner. `fleet`: number and places of own drivers.
//! * `areas`: areas that refuse orders. `admission`: results of admission requests, compared over all sources.
//! * `run`: the replay from start to end. `measure`, `report`: its results.

mod admission;
mod areas;
mod choices;
mod columns;
mod fleet;
pub mod hours;
mod measure;
pub mod options;
mod plan;
mod report;
mod rides;
mod run;
mod sample;
mod supply;
mod zones;

pub use options::ReplayOptions;
pub use run::run;
