//! One order, one driver: what happens when many press accept in the same millisecond.
//!
//! * [`gate`]: the gatekeeper in Redis, `SET trip_lock:{order} {driver} NX EX 10`. It sends all but one away at once.
//! * [`accept`]: look, pass the gate, write.
//!
//! The gate decides nothing: the versioned update of the order's row is the only requeue_policy, as for every other change. So
//! Redis may be slow, away or empty, and the answers stay the same.

mod accept;
mod gate;

pub use accept::accept_offer;
pub(crate) use gate::forget_lock;
