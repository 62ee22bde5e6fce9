//! Decisions on orders that a partner serves.
//!
//! * [`answer`]: what a partner answers. [`observation`]: what a callback or an answer says, in one form.
//! * [`decide`]: what it leads to.
//! * [`backoff`], `poll_config`: when the partner is asked again.

pub mod answer;
pub mod backoff;
pub mod decide;
pub mod observation;
mod poll_config;

pub use poll_config::PollConfig;
