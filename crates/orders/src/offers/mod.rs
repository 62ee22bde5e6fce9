//! Live offers to drivers. Design: docs/design/offers-and-search.md.
//!
//! * [`live`]: the live offers of a driver. [`board`]: long polls of apps for offers.
//! * [`free_drivers`]: matching of free drivers and waiting orders.

pub mod board;
pub mod free_drivers;
pub mod live;
