//! What it means for the money that the system ended an order.
//!
//! * [`decide`]: final status and alert, by the payment. Pure.
//! * [`compensate`]: the job. [`alarm`]: alerts support when the database refuses an order's end.

pub mod alarm;
pub mod compensate;

pub use model::compensation as decide;
