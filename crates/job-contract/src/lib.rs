//! Contract between the producers of jobs and their handlers. It depends on neither Redis nor an engine.
//!
//! * [`job`]: identity, queue and payload of a job, and [`NewJob`], the request to run it.
//! * [`retry`]: backoff with jitter.
//! * [`outcome`]: result of a handler: done, snooze, park, retry, dead.
//! * [`slots`]: slots for work that only a limited number of jobs may do at once.

pub mod job;
pub mod outcome;
pub mod retry;
pub mod slots;

pub use job::{DecodeError, Delivery, InvalidJobId, Job, JobAddress, JobId, NewJob};
pub use outcome::Outcome;
pub use retry::RetryPolicy;
pub use slots::{InvalidSlotNeed, SlotGrant, SlotNeed};
