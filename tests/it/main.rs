//! Tests that need the binary, and checks of documents and sources. The tests of each capability are in its crate.
//!
//! * `process`: real worker and API processes, killed, drained and disconnected. `partner`: the same with a simulated
//!   partner.
//! * `browser`: the staff pages in a real browser.
//! * `cli`: output of the command line. `settings`: invalid settings, secrets and environment variables fail early
//!   without disclosure.
//! * `metrics`: metrics of real processes, and the rules and dashboards that use them.
//! * `sql`: the schema, its statements, and index writes. `portability`: SQL that other engines lack. `roles`: serve and
//!   work with the rights of their role.
//! * `upgrade`: everything that the previous release uses still exists. `deploy`: the files of deploy/ use names from
//!   the code.
//! * `language`: the vocabulary of all texts. `documents`, `rules`: lists and links of pages. `data_page`: the data
//!   dictionary and its queries. `driver_guide`: the commands for drivers' apps.
//!   `tutorial`: the commands of the tutorial and of README.md. `export`: files of `dispatchq export`. `layering`: dependencies of files and crates.
//! * `supply_chain`: builds follow Cargo.lock.
//! * `support`: real processes of the binary, in addition to the crate `test-support`.

// Request futures are nested deeper than the default allows.
#![recursion_limit = "256"]

mod browser;
mod cli;
mod data_page;
mod deploy;
mod documents;
mod driver_guide;
mod export;
mod language;
mod layering;
mod metrics;
mod partner;
mod portability;
mod process;
mod roles;
mod rules;
mod settings;
mod sql;
mod supply_chain;
mod support;
mod tutorial;
mod upgrade;
