//! Messages to the producer about the creation of its order. The statement that creates the order writes them, with the
//! number, the status and the time of each step, which only Postgres knows.

use chrono::{DateTime, Utc};
use model::{
    messages::{self, ChannelRoutes, MESSAGE_EXPIRY, ProducerEvent, STEP_VERSION, body::StepBody},
    order::{EventReason, OrderStatus, OrderStep},
};
use uuid::Uuid;

use super::create::{CreationReport, OrderCreation};

/// Returns the messages about the steps of this creation that its producer subscribes to.
pub fn reports_of(creation: &OrderCreation, routes: &ChannelRoutes) -> Vec<CreationReport> {
    let Some(subscription) = routes.subscription_of(creation.owner.as_deref()) else { return Vec::new() };
    let scheduled = creation.starts_at.map(|_| OrderStep::Scheduled);
    let steps = [Some(OrderStep::Created), scheduled].into_iter().flatten();
    let report = &|step, channel: String| {
        let stored = messages::order_step(vec![channel.clone()], step_of(creation, step)).to_stored();
        CreationReport {
            message_id: Uuid::now_v7(),
            kind: stored.kind,
            channel,
            payload: stored.payload,
            lifetime_s: MESSAGE_EXPIRY.num_seconds(),
        }
    };
    steps
        .flat_map(|step| {
            let channels = subscription.channels_for(ProducerEvent::Step(step));
            channels.into_iter().map(move |channel| report(step, channel))
        })
        .collect()
}

/// Returns the body of a step. The statement replaces its number, its status and its time.
fn step_of(creation: &OrderCreation, event: OrderStep) -> StepBody {
    StepBody {
        event,
        version: STEP_VERSION,
        seq: 0,
        order_id: creation.id.clone(),
        status: OrderStatus::Scheduled,
        previous_status: None,
        reason: EventReason::OrderCreated,
        attempt_no: None,
        driver_id: None,
        changed: Vec::new(),
        has_contents: creation.details.is_some(),
        timestamp: DateTime::<Utc>::UNIX_EPOCH,
    }
}
