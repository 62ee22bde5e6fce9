//! Who is told what over which channel, and what happens until a person acts on it.

mod alarm;
mod alerts;
mod channels;
mod events;
mod languages;
mod redeliver;
mod steps;
mod tickets;
