//! What operators may do with single jobs: the queue would do it; here stand the reasons why not.
//!
//! * [`wanted`]: which row or schedule asks for a job, and would put it back.
//! * [`job`]: cancelling and rescheduling.

pub mod job;
pub mod wanted;
