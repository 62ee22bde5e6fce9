//! The tests of messages: who is told what over which channel, and what happens until a person acts on it.
//!
//! * `outbox`: messages reach their receiver, once, or are given up. `delivery`: tries, hanging channels, and channels that fail together.
//! * `channels`, `voice`, `tickets`: ways to a person. `languages`: the words on them.
//! * `events`, `steps`: what programs are told. `redeliver`: dead messages are listed and sent again.
//! * `alerts`, `alarm`: what desks are told. `acknowledgements`: how often, and what is acknowledged by itself.

// Futures of requests are nested deeper than the default allows.
#![recursion_limit = "256"]

mod acknowledgements;
mod alarm;
mod alerts;
mod channels;
mod delivery;
mod events;
mod languages;
mod outbox;
mod redeliver;
mod steps;
mod tickets;
mod voice;
