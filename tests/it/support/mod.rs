//! Test support that needs the binary, in addition to `test_support`, the application under test and its users.
//!
//! * `fleet`: real processes of the binary on their own servers.
//! * `pages`: the commands of a page, and the output that it shows.
//! * `prometheus`: a Prometheus that scrapes real processes. `collector`: a trace collector.

mod collector;
mod fleet;
pub(crate) mod pages;
mod prometheus;

pub(crate) use collector::{CollectedSpan, Collector};
pub(crate) use fleet::{Child, Fleet, Printed, run_binary, run_binary_with_input, send_until_answered};
pub(crate) use prometheus::{Prometheus, last_value};
pub(crate) use test_support::*;
