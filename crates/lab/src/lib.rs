//! Benchmarks, and replays of recorded rides. Not part of the product: an image is built without this crate.
//!
//! * [`bench`]: benchmarks of the queue, orders, bindings, admission and the console.
//! * [`board`]: apalis-board on the queues of an installation.
//! * [`replay`]: recorded rides with simulated drivers or a simulated partner.
//! * [`testbed`]: a complete installation for one run: private servers, processes of this binary, a simulated partner
//!   and provider.

#![recursion_limit = "256"]

pub mod bench;
pub mod board;
pub mod replay;
pub mod testbed;
