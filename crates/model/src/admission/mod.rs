//! Admission: whether an area accepts another order.
//!
//! * [`limits`]: thresholds, cooldowns, loyalty, overrides, the flag.
//! * [`decide`]: the decision. [`verdicts`]: results of requests, as they are counted.
//! * [`answer`]: the answers in each language, as the requirement prescribes them.
//! * [`schedule`]: thresholds by weekday and time of day, in the area's time zone.
//! * [`advise`]: thresholds proposed from the history of an area, and tested on another period.

pub mod advise;
pub mod answer;
pub mod decide;
pub mod limits;
pub mod schedule;
pub mod verdicts;
