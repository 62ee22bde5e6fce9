//! What drivers are being asked.
//! Design: docs/design/offers-and-search.md.
//!
//! * [`live`]: the live offers of a driver. [`board`]: their apps wait here for offers.
//! * [`free_drivers`]: who may be asked, and for which of the orders that wait.

pub mod board;
pub mod free_drivers;
pub mod live;
