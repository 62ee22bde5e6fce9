//! The tests of messages: recipients, channels, and escalation until a person acts.
//!
//! * `outbox`: messages are delivered once or given up. `first_tries`: sent by the process that wrote them. `delivery`: tries, hanging channels, and channels that fail
//!   together.
//! * `channels`, `voice`, `tickets`: channels to people. `languages`: their texts.
//! * `events`, `steps`: messages for programs. `endpoints`: webhook endpoints that were created by API.
//!   `redeliver`: dead messages are listed and sent again.
//! * `alerts`, `alarm`: messages for desks. `acknowledgements`: their number, and acknowledgement without a person.

// Nested request futures exceed the default limit.
#![recursion_limit = "256"]

mod acknowledgements;
mod alarm;
mod alerts;
mod channels;
mod delivery;
mod endpoints;
mod events;
mod first_tries;
mod languages;
mod outbox;
mod redeliver;
mod steps;
mod tickets;
mod voice;
