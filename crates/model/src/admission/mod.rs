//! Whether an area takes one more order.
//!
//! * [`limits`]: thresholds, cooldowns, loyalty, overrides, the flag.
//! * [`decide`]: the decision.
//! * [`answer`]: what is said, to the letter of the requirement, in two languages.

pub mod answer;
pub mod decide;
pub mod limits;
