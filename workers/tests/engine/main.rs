//! The engine against a real Redis. Scripts are tested with a clock that is moved by hand; only the runtime's tests wait
//! for real time, and never for correctness.

mod enqueue;
mod epoch;
mod inspect;
mod lease;
mod outage;
mod poison;
mod registry;
mod runtime;
mod settle;
mod support;
mod take;
