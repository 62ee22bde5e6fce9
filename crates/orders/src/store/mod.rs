//! Orders as rows.
//!
//! * [`write`]: writes a change with all that hangs on it. `offers`: the offers that a change makes.
//! * Loading, and what is written together with others': [`order_store`](crate::order_store).

mod offers;
pub mod write;

pub use crate::order_store::load::load_order;
