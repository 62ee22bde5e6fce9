//! Order dispatch on a real Redis and a real Postgres, most of it with a clock moved by hand.
//!
//! * `sql`: the schema, the statements against it, and what costs an index write.
//! * `upgrade`: everything that the previous release uses is still there.
//! * `metrics`: what is counted and shown, and the rules and dashboards that live by it.
//! * `process`: real worker and API processes, killed, drained and cut off.
//! * `partner`: orders served by a partner, in every order of arrival, with every fault, killed at every step.
//! * `partner_sim`: the simulated partner keeps to docs/PARTNER.md, and fails as told.
//! * `deploy`: the files of deploy/ name what the code has.
//! * `cli`: what the command line prints. `language`: the words of all texts. `documents`: lists and links of pages. `layering`: which file may do what.
//! * `support`: the application under test, its clock, and who plays drivers and receivers.

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
