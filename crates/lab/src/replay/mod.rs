//! `dispatchq replay`: real rides played against the real system, at many times their speed, and the history checked.
//!
//! It runs on a `testbed`; only who drives is simulated: drivers of our own, or a partner. `--speed` divides the order's
//! own durations and those of the simulated people, never the machine's.
//!
//! * [`options`]: the command line.
//! * `columns`, `rides`, `zones`, `sample`: the data as it comes; dirty rows are skipped and counted.
//! * [`hours`]: a ride file as what `area advise` learns from, and is judged on.
//! * `plan`: which orders are played, and when. `choices`: what drivers do. Both pure.
//! * `supply`: who drives. `fleet`: how many own drivers, and where they wait.
//! * `areas`: areas that refuse orders. `admission`: what became of requests for places in them, by all who count it.
//! * `run`: the replay from first to last. `measure`, `report`: what came of it.

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
