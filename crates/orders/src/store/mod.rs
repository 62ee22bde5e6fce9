//! Rows of orders.
//!
//! * [`write`]: writes a change with everything that depends on it. `offers`: the offers that a change creates.
//!   `contents`: changes to the contents of an order.
//! * Loading and batched writes: [`order_store`](crate::order_store).

mod contents;
mod offers;
pub mod write;

pub use crate::order_store::load::load_order;
