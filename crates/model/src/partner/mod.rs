//! Decisions on orders that a partner serves.
//!
//! * [`answer`]: answers of a partner. [`observation`]: the content of a callback or an answer, in one form.
//! * [`decide`]: decisions on them.
//! * [`choice`]: the choice of the partner for an attempt, if there are several.
//! * [`reference`]: our name for a booking. [`retrieval`]: why an order ended without a job id.
//! * [`backoff`], `poll_config`: the times of polls and retries.

pub mod answer;
pub mod backoff;
pub mod choice;
pub mod decide;
pub mod observation;
mod poll_config;
pub mod reference;
pub mod retrieval;

pub use poll_config::PollConfig;
pub use reference::BookingReference;
pub use retrieval::RetrievalFailure;
