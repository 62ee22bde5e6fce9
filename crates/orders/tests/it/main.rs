//! The tests of orders, most of them with a clock that the test moves.
//!
//! * `lifecycle`: an order from its creation to its end. `offers`, `drivers`: choice of drivers. `accept`: answers to
//!   the driver.
//! * `skills`: labels that orders require. `waves`: attempts that ask further drivers step by step.
//! * `scheduled`: orders with a pickup time: start, move, cancel, warning, full areas.
//! * `test_clock`: times of an order that move.
//! * `scarcity`: the cost of waiting for a driver, and how soon a free driver gets the next order.
//! * `races`: concurrent requests for one order or one driver. `reservation`: thousands of accepts, and the gate.
//! * `changes`: answered changes are kept when batches, commits or connections fail. `kept`: decisions without a load.
//! * `refunds`: refunds through a payment service, and by hand. `owners`: an order belongs to the producer that created
//!   it.
//! * `metrics`: metrics and when they count. `throughput`: Postgres statements of many concurrent orders.
//!   `life_work`: limits of what one order costs in Postgres.

// Nested request futures exceed the default limit.
#![recursion_limit = "256"]

mod accept;
mod changes;
mod drivers;
mod kept;
mod life_work;
mod lifecycle;
mod metrics;
mod offers;
mod owners;
mod races;
mod refunds;
mod reservation;
mod scarcity;
mod scheduled;
mod skills;
mod test_clock;
mod throughput;
mod waves;
