//! `dispatchq replay`: real rides played against the real system, at many times their speed, and the history checked.
//!
//! Redis and Postgres are private servers, `serve` and `work` are processes of this very binary, and orders and drivers
//! go through HTTP and webhooks as in production. Only the drivers are simulated. `--speed` divides the order's own
//! durations and the drivers' times; leases, HTTP timeouts and repairs keep their real length, so what a killed worker
//! costs is seen as it is.
//!
//! * [`options`]: the command line.
//! * `columns`, `rides`, `zones`, `sample`: the data as it comes; dirty rows are skipped and counted.
//! * `plan`: which orders are played, and when. `choices`: what drivers do. Both pure.
//! * `fleet`: the drivers and their keys, in the database. `drivers`: how they answer offers.
//! * `producer`: creates the orders, each at its time. `api`: the HTTP calls of both.
//! * `stage`: the private servers and all that is torn down again. `settings`: their configuration; `run_dir`: where it
//!   and the logs lie. `processes`: `serve` and `work`; `watchdog` ends them if we die first.
//! * `run`: the replay from first to last. `rest`: is everything settled? `measure`, `report`: what came of it.

mod api;
mod choices;
mod columns;
mod drivers;
mod fleet;
mod measure;
pub mod options;
mod plan;
mod processes;
mod producer;
mod report;
mod rest;
mod rides;
mod run;
mod run_dir;
mod sample;
mod settings;
mod stage;
mod watchdog;
mod zones;

pub use options::Options;
pub use run::run;
