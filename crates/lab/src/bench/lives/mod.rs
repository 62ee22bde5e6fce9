//! `dispatchq bench orders --scenario fleet`: lives of orders that own drivers serve, at a steady rate, at their real speed.
//!
//! Each life is the same: an order is created over HTTP with an idempotency key; the first driver lets the offer lapse after 2 s,
//! the second accepts it after 0.2 s, and picks up and completes after half a second each. Other systems can be given the same
//! life, and take their turn in the same run ([`peer`]).
//!
//! * `town`: where drivers wait and orders are. `script`: what drivers do. Both pure.
//! * `run`: from the first order to rest. `measure`: what the tables say. `report`: table and JSON.

mod measure;
mod peer;
mod report;
mod run;
mod script;
mod town;

pub(super) use run::run;
