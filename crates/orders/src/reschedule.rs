//! Changes of the pickup time of scheduled orders.

use chrono::{DateTime, Utc};
use model::{
    actor::Actor,
    admission::answer::AdmissionAnswer,
    decide::{Change, Decision, OrderRefusal, schedule},
    field_error::FieldError,
    input::GivenTime,
    order::{Order, OrderStatus, Snapshot},
    schedule::{SchedulePolicy, as_stored},
};

use crate::{capability::Orders, start::seeker_of};
use areas::admission::place;

/// Reason why a pickup cannot be moved to a time.
#[derive(Debug)]
pub enum MoveError {
    /// The time is in the past or too far ahead.
    Invalid(FieldError),
    /// The hour of the new pickup is full.
    Full(Box<AdmissionAnswer>),
}

/// A new pickup time for an order, and the settings that it was checked against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PickupMove {
    pickup_at: DateTime<Utc>,
    policy: SchedulePolicy,
}

impl PickupMove {
    /// Checks the new pickup time of this order. The limit of an hour is counted without a lock, so concurrent moves may
    /// exceed it by their number.
    pub async fn new(orders: &Orders, order: &Order, pickup_at: GivenTime) -> Result<Self, MoveError> {
        let (pickup_at, policy) = (as_stored(pickup_at.time()), orders.config.schedule_policy(&order.service_type));
        // After the start, `add_move` refuses every time.
        let is_scheduled = order.status == OrderStatus::Scheduled;
        if let Some(problem) = policy.find_problem(pickup_at, orders.core.database_clock.now()).filter(|_| is_scheduled)
        {
            return Err(MoveError::Invalid(problem));
        }
        if is_scheduled
            && order.pickup_at != Some(pickup_at)
            && let Some(area) = &order.area_id
        {
            let seeker = seeker_of(order);
            let refused = place::find_full_hour(&orders.areas, seeker, area, (order.pickup_at, pickup_at)).await;
            if let Some(answer) = refused {
                return Err(MoveError::Full(Box::new(answer)));
            }
        }
        Ok(Self { pickup_at, policy })
    }

    /// Adds the move to a change of the order. Returns whether the order has another pickup time.
    pub fn add_to(&self, change: &mut Change, s: &Snapshot) -> Result<bool, OrderRefusal> {
        schedule::add_move(change, s, self.pickup_at, &self.policy)
    }

    /// Decides on the move. Refused after the start of dispatch.
    pub fn decide(&self, s: &Snapshot, actor: &Actor) -> Decision {
        schedule::move_pickup(s, actor, self.pickup_at, &self.policy)
    }
}
