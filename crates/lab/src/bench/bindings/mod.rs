//! `dispatchq bench bindings`: how many cycles a second bindings run through their slots, and what that costs.
//!
//! It runs on a `testbed`. The provider is a process of its own, so that its processor time is apart, and it is the judge of
//! every call. When a cycle was due is in no table once it has begun; so the benchmark reads the rows often enough to see it,
//! and the product records nothing for its sake.
//!
//! * [`options`]: the command line, and the bound that follows from it. Pure.
//! * `stage`: the testbed, its servers and bindings. `provider`: the simulated provider and its verdict.
//! * `due_times`: when cycles were due, and how long they waited. `stops`: how long a stop takes.
//! * `measure`: what the tables say. `run`: from the first cycle to rest. `report`: table and JSON.
//! * `idle`: the other question: what many bindings cost that do nothing. `idle_fill`: makes them. `idle_report`: what it shows.

mod due_times;
mod idle;
mod idle_fill;
mod idle_report;
mod measure;
pub mod options;
mod provider;
mod report;
mod run;
mod stage;
mod stops;

pub use options::BindingsOptions;
pub use run::run;
