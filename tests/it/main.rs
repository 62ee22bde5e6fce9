//! Order dispatch on a real Redis and a real Postgres, most of it with a clock moved by hand.
//!
//! * `lifecycle`: what happens to an order, from its creation to its end.
//! * `at_least_once`: every job doubled, early, stale or interrupted changes nothing.
//! * `races`: many want the same order, or one driver, at the same moment.
//! * `recovery`: what the reconciler puts back, and what it leaves alone.
//! * `periodic`: schedules run once, cleanup leaves what is needed, pauses last.
//! * `http`: what producers and drivers are answered, also while a server is away.
//! * `console`: the pages of staff over real HTTP. `browser`: the same pages in a real browser.
//! * `sound`: faults that once lost, doubled or leaked something stay mended.
//! * `scarcity`: what waiting for a driver costs, and how soon a driver who is free has the next order.
//! * `throughput`: what many orders cost Postgres together.
//! * `sql`: the schema, the statements against it, and what costs an index write.
//! * `upgrade`: everything that the previous release uses is still there.
//! * `metrics`: what is counted and shown, and the rules and dashboards that live by it.
//! * `process`: real worker and API processes, killed, drained and cut off.
//! * `checker`, `binding_checker`: every invariant can fail.
//! * `partner`: orders served by a partner, in every order of arrival, with every fault, killed at every step.
//! * `refunds`: refunds through a payment service, and by hand.
//! * `partner_sim`: the simulated partner keeps to docs/PARTNER.md, and fails as told.
//! * `deploy`: the files of deploy/ name what the code has.
//! * `cli`: what the command line prints. `language`: the words of all texts. `documents`: lists and links of pages. `layering`: which file may do what.
//! * `support`: the application under test, its clock, and who plays drivers and receivers.

// Futures of requests are nested deeper than the default allows.
#![recursion_limit = "256"]

mod at_least_once;
mod browser;
mod checker;
mod cli;
mod console;
mod deploy;
mod documents;
mod drivers;
mod http;
mod language;
mod layering;
mod lifecycle;
mod metrics;
mod offers;
mod partner;
mod partner_sim;
mod periodic;
mod process;
mod races;
mod recovery;
mod refunds;
mod reservation;
mod rules;
mod scarcity;
mod sound;
mod sql;
mod support;
mod throughput;
mod upgrade;
