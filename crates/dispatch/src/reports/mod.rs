//! Counts for people and dashboards.
//!
//! * [`census`]: open orders, and refunds to begin.
//! * [`area_status`]: how areas stand, and stood.

pub mod area_status;
pub mod census;
