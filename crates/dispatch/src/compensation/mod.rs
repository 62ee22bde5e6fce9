//! What it means for the money that the system ended an order.
//!
//! * [`decide`]: final status and alert, by the payment. Pure.
//! * [`compensate`]: the job.

pub mod compensate;

pub use model::compensation as decide;
