//! `dispatchq bench accept`: many drivers press accept for the same order at the same moment, over HTTP.
//!
//! Three ways to decide who wins take turns in one run, each behind the same server, with the same keys, rows and
//! transactions: the gate in Redis before a conditional update (the product), the conditional update alone, and row locks.
//! They are the alternatives that the requirement on reservation compares. Then the product's way again, while Redis is
//! stopped and started, flushed, and slow.
//!
//! * [`options`]: the command line. `stage`: servers, drivers, orders that are offered to all of them.
//! * `ways`: the ways to decide. `race`: one order's race. `answers`: what the server takes for those who lose. `run`: the turns.
//!   `report`: table and JSON. `goals`: what the product is to reach beside row locks.

mod answers;
mod goals;
pub mod options;
mod race;
mod report;
mod run;
mod stage;
mod ways;

pub use options::AcceptOptions;
pub use run::run;
