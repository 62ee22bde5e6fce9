//! Faults that once lost, doubled or leaked something, each with the test that keeps it from coming back. The name of a test
//! begins with the number of its row in docs/FAILURES.md.
//!
//! * `edge`: floods, slow clients and forged requests cost other clients nothing.
//! * `identity`: who may do what, who did it, and what is forgotten about people.
//! * `settings`: settings, secrets and the environment fail early and give nothing away.

mod edge;
mod identity;
mod settings;
