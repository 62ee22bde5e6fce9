//! Real processes with a partner. The other tests of partners are in crates/partner.
//!
//! * `crashes`: processes that die at every side effect.
//! * `limits`: what a partner bears, shared by all processes.

mod crashes;
mod limits;
