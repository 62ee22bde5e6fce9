//! The tests of orders, most of them with a clock moved by hand.
//!
//! * `lifecycle`: an order from its creation to its end. `offers`, `drivers`: who is asked. `accept`: what the driver is answered.
//! * `scarcity`: what waiting for a driver costs, and how soon a free driver has the next order.
//! * `races`: many want the same order, or one driver, at the same moment. `reservation`: thousands of accepts, and the gate.
//! * `changes`: what a client was answered is kept, whatever happens to batches, commits and connections.
//! * `refunds`: refunds through a payment service, and by hand. `owners`: an order belongs to the producer that created it.
//! * `metrics`: what is counted, and when. `throughput`: what many orders cost Postgres together.

// Futures of requests are nested deeper than the default allows.
#![recursion_limit = "256"]

mod accept;
mod changes;
mod drivers;
mod lifecycle;
mod metrics;
mod offers;
mod owners;
mod races;
mod refunds;
mod reservation;
mod scarcity;
mod throughput;
