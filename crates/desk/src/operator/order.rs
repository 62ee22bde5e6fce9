//! Dispatchers' decisions on an order. The order's history stores each decision with its author and reason.

use jobs::OrderId;
use model::{
    actor::Actor,
    decide::{Decision, OrderRefusal, actions, review},
    ids::DriverId,
    order::{EventReason, Snapshot},
};

use crate::capability::Desk;
use foundation::core::Core;
use orders::{
    change::ChangeError,
    changed::Changed,
    fleet::drivers,
    query::{self, TimelineEvent},
    seen::Basis,
};

#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum OrderAction {
    Assign(DriverId),
    /// Removes the driver and continues the search.
    Release,
    /// Restarts the search.
    Redispatch,
    /// Puts the order on hold: its timers stop until it is resumed or another decision is made.
    Hold,
    /// Ends the hold or review.
    Resume,
}

impl OrderAction {
    /// Returns the action's name in API paths.
    pub fn as_str(&self) -> &'static str {
        self.into()
    }

    fn decide(&self, s: &Snapshot, actor: &Actor, why: Option<&str>) -> Decision {
        match self {
            Self::Assign(driver) => actions::assign_driver(s, actor, driver).with_reason(why),
            Self::Release => actions::release_driver(s, actor, why.map(str::to_owned)),
            Self::Redispatch => actions::redispatch_order(s, actor).with_reason(why),
            Self::Hold => review::hold_order(s, actor, why.unwrap_or("held by hand")),
            Self::Resume => review::resume_order(s, actor, why.unwrap_or("resumed by hand")),
        }
    }

    /// Returns the action's reason in the history.
    fn event_reason(&self) -> EventReason {
        match self {
            Self::Assign(_) => EventReason::AssignedByHand,
            Self::Release => EventReason::TakenBack,
            Self::Redispatch => EventReason::Redispatched,
            Self::Hold => EventReason::HeldForReview,
            Self::Resume => EventReason::ResumedByHand,
        }
    }

    /// Returns whether this event records the action; for an assignment, with the same driver.
    fn is_told_by(&self, event: &TimelineEvent) -> bool {
        // The detail is the driver, then the reason.
        let names = |driver: &DriverId| {
            let rest = event.detail.as_deref().and_then(|detail| detail.strip_prefix(driver.as_str()));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(": "))
        };
        event.reason == self.event_reason().as_str()
            && match self {
                Self::Assign(driver) => names(driver),
                Self::Release | Self::Redispatch | Self::Hold | Self::Resume => true,
            }
    }
}

/// Applies an action to an order for this person, and enqueues the following jobs. Returns the order after the action.
///
/// # Errors
/// Fails if the order or an active driver with the id does not exist, or if the order does not allow the action.
pub async fn act_on_order(
    desk: &Desk,
    id: &OrderId,
    action: &OrderAction,
    actor: &Actor,
    why: Option<&str>,
) -> Result<Snapshot, ChangeError> {
    if let OrderAction::Assign(driver) = action
        && !drivers::driver_exists(&desk.core.db, driver).await?
    {
        return Err(ChangeError::Refused(OrderRefusal::NoSuchDriver));
    }
    let Changed { after, effects, .. } = desk.orders.change(id, Basis::Fresh, |s| action.decide(s, actor, why)).await?;
    effects.run(&desk.orders).await;
    Ok(*after)
}

/// Returns whether the latest event that a person caused on this order is this action by the same person. If so, an
/// earlier request carried out the action, and its response was lost. Events of workers are ignored.
pub async fn was_carried_out(
    core: &Core,
    id: &OrderId,
    action: &OrderAction,
    actor: &Actor,
) -> Result<bool, sqlx::Error> {
    let timeline = query::load_timeline(&core.db, id).await?;
    let by_people = timeline.iter().rev().find(|event| Actor::parse(&event.actor).is_staff());
    let actor = actor.to_string();
    Ok(by_people.is_some_and(|event| action.is_told_by(event) && event.actor == actor))
}
