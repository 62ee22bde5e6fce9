//! What it means for the money that the system ended an order.
//!
//! * [`decide`]: final status and alert, by the payment. Pure.
//! * [`compensate`]: the job. [`alarm`]: has support alerted when the database refuses an order's end. [`outage`]: alerts support once when
//!   Postgres is away. [`refund`]: asks the payment service to pay back.

pub mod alarm;
pub mod outage;

pub use model::compensation as decide;
