//! The contract between who enqueues a job and who performs it. Knows neither Redis nor an engine.
//!
//! * [`job`]: identity, queue and payload of a job, and [`NewJob`], the request to have it run.
//! * [`retry`]: backoff with jitter, pure.
//! * [`outcome`]: what a handler answers: done, snooze, park, retry, dead.
//! * [`slots`]: what a job must hold while only so many may work at once.

pub mod job;
pub mod outcome;
pub mod retry;
pub mod slots;

pub use job::{DecodeError, Delivery, InvalidJobId, Job, JobAddress, JobId, NewJob};
pub use outcome::Outcome;
pub use retry::RetryPolicy;
pub use slots::{InvalidSlotNeed, SlotGrant, SlotNeed};
