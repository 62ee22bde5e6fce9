//! What dispatchers decide on an order: each decision with who made it and why, in the order's history.

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
    commit::{ChangeError, ChangeOutcome},
    fleet::drivers,
    query::{self, TimelineEvent},
    update::update_order,
};

/// What is to be done with an order.
#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum OrderAction {
    /// This driver takes it.
    Assign(DriverId),
    /// It is taken from its driver, and the search goes on.
    Release,
    /// The search restarts.
    Redispatch,
    /// Its timers stop until it is resumed, or decided on otherwise.
    Hold,
    /// Its review ends.
    Resume,
}

impl OrderAction {
    /// The word of the path that asks for it.
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

    /// What the history says of it.
    fn event_reason(&self) -> EventReason {
        match self {
            Self::Assign(_) => EventReason::AssignedByHand,
            Self::Release => EventReason::TakenBack,
            Self::Redispatch => EventReason::Redispatched,
            Self::Hold => EventReason::HeldForReview,
            Self::Resume => EventReason::ResumedByHand,
        }
    }

    /// Returns whether this event says that it was done: of an assignment, to this driver.
    fn is_told_by(&self, event: &TimelineEvent) -> bool {
        // The driver, then why.
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

/// Decides on an order in this person's name, and enqueues what follows.
///
/// # Errors
/// No such order, no such driver who may work, or why the order does not allow it.
pub async fn act_on_order(
    desk: &Desk,
    id: &OrderId,
    action: &OrderAction,
    actor: &Actor,
    why: Option<&str>,
) -> Result<ChangeOutcome, ChangeError> {
    if let OrderAction::Assign(driver) = action
        && !drivers::driver_exists(&desk.core.db, driver).await?
    {
        return Err(ChangeError::Refused(OrderRefusal::NoSuchDriver));
    }
    update_order(&desk.orders, id, |s| action.decide(s, actor, why)).await
}

/// Returns whether the last thing that happened to the order, apart from what workers did, is this action of this person: it was
/// carried out by a request whose answer got lost.
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
