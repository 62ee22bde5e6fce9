//! What needs the binary, and the checks of documents and sources. The tests of each capability are in its crate.
//!
//! * `process`: real worker and API processes, killed, drained and cut off. `partner`: the same, with a simulated partner.
//! * `browser`: the pages of staff in a real browser.
//! * `cli`: what the command line prints. `settings`: settings, secrets and the environment fail early and give nothing away.
//! * `metrics`: what real processes show, and the rules and dashboards that live by it.
//! * `sql`: the schema, the statements against it, and what costs an index write. `roles`: serve and work with the rights of their role.
//! * `upgrade`: everything that the previous release uses is still there. `deploy`: the files of deploy/ name what the code has.
//! * `language`: the words of all texts. `documents`, `rules`: lists and links of pages. `layering`: which file may do what.
//! * `supply_chain`: what is built is what Cargo.lock says.
//! * `support`: real processes of the binary, on top of the crate `test-support`.

// Futures of requests are nested deeper than the default allows.
#![recursion_limit = "256"]

mod browser;
mod cli;
mod deploy;
mod documents;
mod language;
mod layering;
mod metrics;
mod partner;
mod process;
mod roles;
mod rules;
mod settings;
mod sql;
mod supply_chain;
mod support;
mod upgrade;
