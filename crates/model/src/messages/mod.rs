//! What people and programs are told, as values.
//!
//! * `kinds`: the messages, each with whom it is for.
//! * [`text`], [`money`]: how they read for people.
//! * [`routes`]: which channels reach whom, and how often an unanswered alert is told again.

mod kinds;
pub mod money;
pub mod routes;
pub mod text;
#[cfg(test)]
mod wire;

pub use kinds::*;
pub use routes::ChannelRoutes;
