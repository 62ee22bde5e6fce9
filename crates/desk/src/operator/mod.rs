//! Staff actions on single jobs and orders. The queue accepts any change of a job; this module refuses changes that
//! would be undone.
//!
//! * [`wanted`]: the row or schedule that needs a job and would enqueue it again.
//! * [`job`]: cancelling and rescheduling. [`error`]: reasons for a refusal.
//! * [`order`]: dispatchers' decisions on an order, each with a reason. [`desk`]: desk claims on orders that wait for a
//!   person.

pub mod desk;
pub mod error;
pub mod job;
pub mod order;
pub mod wanted;
