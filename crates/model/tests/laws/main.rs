//! What must hold of orders, whatever happens to them in whatever order: properties of the pure decisions over thousands of
//! random sequences. And of what people are told.
//!
//! * `fleet`: people ask for things and timers fire.
//! * `partner`: requests, answers and callbacks come late, twice, out of turn or never.
//! * `money`: payment words, cancels, refunds and callbacks in any order.
//! * `superseded`: a timer that a change left behind for good is asked for by no later state, on either track.
//! * `choice`: which of several partners an attempt is booked with.
//! * `steps`: what of the history producers hear of.
//! * `texts`: every text in every language, and templates of an installation's own.
//! * `desk`: the time limits of alerts, by the clock of a desk.
//! * `scale`: more load never wants fewer replicas.
//! * `schedule`: thresholds by time of day, where clocks change, too. `advice`: thresholds that are proposed from what was seen.

mod advice;
mod choice;
mod desk;
mod fleet;
mod money;
mod partner;
mod scale;
mod schedule;
mod steps;
mod superseded;
mod texts;

use model::actor::Actor;

/// An actor as tables name it.
fn by(actor: &str) -> Actor {
    Actor::parse(actor)
}
