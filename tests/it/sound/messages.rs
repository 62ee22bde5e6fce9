//! Each message goes out, once, whatever its neighbours do; each alert reaches a desk.
//!
//! * `delivery`: tries, channels that hang, and channels that fail at the same moment.
//! * `alerts`: what a desk is told, how often, and what is acknowledged by itself.
//! * `answers`: what a driver or producer is answered beside it.

mod alerts;
mod answers;
mod delivery;
