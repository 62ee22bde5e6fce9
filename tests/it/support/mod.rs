//! What needs the binary, on top of `test_support`, the application under test and those who use it.
//!
//! * `fleet`: real processes of the binary on servers of their own.
//! * `prometheus`: a Prometheus that scrapes real processes. `collector`: a collector of traces.

mod collector;
mod fleet;
mod prometheus;

pub(crate) use collector::{CollectedSpan, Collector};
pub(crate) use fleet::{Child, Fleet, Printed, run_binary, run_binary_with_input, send_until_answered};
pub(crate) use prometheus::{Prometheus, last_value};
pub(crate) use test_support::*;
