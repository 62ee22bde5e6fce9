//! Decisions on orders that a partner serves.
//!
//! * [`answer`]: what a partner answers. [`observation`]: what a callback or an answer says, in one form.
//! * [`decide`]: what it leads to.
//! * [`choice`]: which partner an attempt is booked with, where there are several.
//! * [`reference`]: our name for a booking. [`retrieval`]: why an order ended without a job id.
//! * [`backoff`], `poll_config`: when the partner is asked again.

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
