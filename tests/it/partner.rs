//! Real processes with a partner. The other partner tests are in crates/partner.
//!
//! * `crashes`: processes that die at each side effect.
//! * `limits`: partner limits shared by all processes.

mod crashes;
mod limits;
