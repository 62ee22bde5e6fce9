//! Whether an area takes one more order.
//!
//! * [`limits`]: thresholds, cooldowns, loyalty, overrides, the flag.
//! * [`decide`]: the decision. [`verdicts`]: what became of requests, in the words they are counted by.
//! * [`answer`]: what is said, to the letter of the requirement, in each language.
//! * [`schedule`]: thresholds by weekday and time of day, in the area's time zone.
//! * [`advise`]: thresholds proposed from what an area has done, and judged on another time.

pub mod advise;
pub mod answer;
pub mod decide;
pub mod limits;
pub mod schedule;
pub mod verdicts;
