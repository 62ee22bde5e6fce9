//! What the end of an order by the system means for its payment.
//!
//! * [`alarm`]: alerts support if the database refuses the end of an order. [`outage`]: alerts support once while Postgres is away.
//!
//! The decision is [`model::compensation`]. The jobs are in `workers/src`: compensate.rs, refund.rs, alarm.rs.

pub mod alarm;
pub mod outage;

pub use model::compensation as decide;
