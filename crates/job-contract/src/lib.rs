//! The contract between who enqueues a job and who performs it. Knows neither Redis nor an engine.
//!
//! * [`job`]: identity, queue and payload of a job, and [`NewJob`], the request to have it run.
//! * [`retry`]: backoff with jitter, pure.
//! * [`outcome`]: what a handler answers: done, snooze, retry, dead.

pub mod job;
pub mod outcome;
pub mod retry;

pub use job::{DecodeError, Delivery, InvalidJobId, Job, JobId, NewJob};
pub use outcome::Outcome;
pub use retry::RetryPolicy;
