//! What tries the product out: benchmarks, and replays of real rides. No part of it: an image is built without.
//!
//! * [`bench`]: what the queue, and orders served by a partner, do on this machine.
//! * [`replay`]: real rides against simulated drivers, or a simulated partner.
//! * [`testbed`]: a whole installation for one run: private servers, processes of this binary, a simulated partner and
//!   provider.

#![recursion_limit = "256"]

pub mod bench;
pub mod replay;
pub mod testbed;
