//! Telling people and programs what happened.
//!
//! * [`messages`]: the messages, as values. Pure.
//! * [`routes`]: which channels reach whom, by configuration.
//! * [`outbox`]: messages as rows, written in the transaction of the transition that causes them.
//! * [`channel`]: how one message travels: webhook or log.
//! * [`notify`]: the job that delivers one row over one channel, again and again until it arrives or is given up.

pub mod channel;
pub mod messages;
pub mod notify;
pub mod outbox;
pub mod routes;

pub use channel::{Channel, Channels};
pub use messages::{Audience, Message};
pub use routes::Routes;
