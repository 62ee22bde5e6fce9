//! What must hold of orders, whatever happens to them in whatever order: properties of the pure decisions over thousands of
//! random sequences.
//!
//! * `fleet`: people ask for things and timers fire.
//! * `partner`: requests, answers and callbacks come late, twice, out of turn or never.

mod fleet;
mod partner;

use model::actor::Actor;

/// An actor as tables name it.
fn by(actor: &str) -> Actor {
    Actor::parse(actor)
}
