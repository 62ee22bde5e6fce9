//! Properties of the pure decisions over thousands of random sequences.
//!
//! * `fleet`: requests and timers.
//! * `partner`: requests, answers and callbacks that are late, repeated, out of order or lost.
//! * `money`: payment statuses, cancels, refunds and callbacks in any order.
//! * `superseded`: a timer that a change made obsolete is never needed again, for fleet and partner orders.
//! * `choice`: the choice among several partners.
//! * `steps`: history events that are sent to producers.
//! * `texts`: all texts in every language, and templates of an installation.
//! * `desk`: time limits of alerts in business hours.
//! * `scale`: more load never needs fewer replicas.
//! * `schedule`: thresholds by time of day, including clock changes. `advice`: thresholds proposed from observations.

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

fn by(actor: &str) -> Actor {
    Actor::parse(actor)
}
