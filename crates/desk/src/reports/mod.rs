//! Counts for people and dashboards.
//!
//! * [`census`]: open orders, and refunds that are not started. [`recent_census`]: a count that all callers of a
//!   process share.
//! * [`area_status`]: present state of areas. [`area_report`]: hourly verdicts of requests. [`area_hours`]: hourly
//!   figures for threshold advice. [`bindings`]: bindings and providers' servers.
//! * [`scale`]: number of workers wanted.
//! * [`curves`]: curves of a queue and of the installation.
//! * [`finder`]: search by any id.
//! * [`fleet_map`]: drivers and orders of the map of the fleet.
//! * [`glance`]: bounded counts and curves of an hour for pages. [`partner_glance`]: work that waits for partners.
//!   [`page_changes`]: detects changes of the rows that pages show.

pub mod area_hours;
pub mod area_report;
pub mod area_status;
pub mod bindings;
pub mod census;
pub mod curves;
pub mod finder;
pub mod fleet_map;
pub mod glance;
pub mod page_changes;
pub mod partner_glance;
pub mod recent_census;
pub mod scale;
