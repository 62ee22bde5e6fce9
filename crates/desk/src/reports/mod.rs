//! Counts for people and dashboards.
//!
//! * [`census`]: open orders, and refunds to begin. [`recent_census`]: a count that many who look share.
//! * [`area_status`]: how areas stand. [`area_report`]: what became of requests there, hour by hour.
//!   [`area_hours`]: what their hours were like, for advice. [`bindings`]: how bindings and providers' servers stand.
//! * [`scale`]: how many workers are wanted.
//! * [`glance`]: bounded counts and an hour of curves, for pages. [`partner_glance`]: what waits for partners. [`page_changes`]: whether what pages show has changed.

pub mod area_hours;
pub mod area_report;
pub mod area_status;
pub mod bindings;
pub mod census;
pub mod glance;
pub mod page_changes;
pub mod partner_glance;
pub mod recent_census;
pub mod scale;
