//! `dispatchq bench orders`: orders served by a partner, at a steady rate, in the four ways a partner integration is loaded.
//!
//! It runs on a `testbed`. Orders are created at a rate of wall time that no speed changes; the speed divides the durations
//! of each order and of the partner, so that an order's half hour fits into a minute. Work per second is therefore that of
//! real time; only fewer orders are open at once.
//!
//! * [`options`]: the command line. `scenario`: what the partner does. `load`: the orders. All pure.
//! * `desk`: where alerts arrive. `watch`: the memory of the workers.
//! * `alerts`: how long the job id alerts take to fire, at real speed.
//! * `stage`: the installation of a run.
//! * `run`: from the first order to rest. `measure`: what the history says of it. `report`: table and JSON.

mod alerts;
mod desk;
mod load;
mod measure;
pub mod options;
mod report;
mod run;
mod scenario;
mod stage;
mod watch;

pub use options::OrdersOptions;
pub use run::run;
