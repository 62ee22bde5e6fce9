//! What staff do with single jobs and orders. The queue would do anything with a job; here stand the reasons why not.
//!
//! * [`wanted`]: which row or schedule asks for a job, and would put it back.
//! * [`job`]: cancelling and rescheduling. [`error`]: why it was not done.
//! * [`order`]: what dispatchers decide on an order, each with a reason. [`desk`]: who is on one that waits for a person.

pub mod desk;
pub mod error;
pub mod job;
pub mod order;
pub mod wanted;
