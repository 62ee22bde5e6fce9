//! What drivers are being asked.
//!
//! * [`live`]: the live offers of a driver. [`board`]: their apps wait here for offers.

pub mod board;
pub mod live;
