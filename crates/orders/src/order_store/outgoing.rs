//! Messages and alerts that a change writes.

use model::{
    decide::Change,
    messages::{
        self, ChannelRoutes, Message, MessageAudience, ProducerEvent, body::StepBody,
        subscriptions::ProducerSubscription,
    },
    order::{OrderStatus, OrderStep, Snapshot},
};

use super::{planned::OfferPlan, side_values::AlertValues, values::OutboxValues};
use crate::feed;
use foundation::db::Connection;
use notify::recipients::{Dispatcher, load_dispatchers};

/// Rows that the messages of a change need. They are read before the write; most changes need none.
#[derive(Debug, Default)]
pub(crate) struct MessageContext {
    dispatchers: Vec<Dispatcher>,
    /// Steps of the order's creation that its producer is not notified of yet.
    creation: Vec<StepBody>,
}

impl MessageContext {
    /// Returns whether a message of the change is for the dispatchers, who must be loaded.
    pub(crate) fn names_dispatchers(change: &Change) -> bool {
        change.messages.iter().any(|message| message.audience == MessageAudience::Dispatchers)
    }

    /// Returns whether the producer may not be notified of the order's creation yet, so that the steps of the creation
    /// must be loaded.
    pub(crate) fn may_owe_creation(routes: &ChannelRoutes, before: &Snapshot) -> bool {
        let subscription = routes.subscription_of(before.order.owner.as_deref());
        subscription.is_some_and(|subscription| owes_creation(before, &subscription))
    }

    pub(crate) async fn load(
        db: &mut Connection,
        routes: &ChannelRoutes,
        before: &Snapshot,
        change: &Change,
    ) -> Result<Self, sqlx::Error> {
        let dispatchers = load_dispatchers(&mut *db, &change.messages).await?;
        let creation = match routes.subscription_of(change.order.owner.as_deref()) {
            Some(subscription) if owes_creation(before, &subscription) => {
                feed::load_creation(db, &change.order.id).await?
            }
            _ => Vec::new(),
        };
        Ok(Self { dispatchers, creation })
    }
}

/// Returns whether this is the first change of an order whose producer subscribes to creations. The creation of an
/// order created in SQL is sent with its first change. If the API has already sent the creation, it is not sent again.
fn owes_creation(before: &Snapshot, subscription: &ProducerSubscription) -> bool {
    let is_scheduled = before.order.status == OrderStatus::Scheduled;
    before.order.version == 0
        && (subscription.has_step(OrderStep::Created) || (is_scheduled && subscription.has_step(OrderStep::Scheduled)))
}

/// Rows of the outbox and of `alerts` for the messages of a change.
#[derive(Debug, Clone, Default)]
pub(super) struct OutgoingMessages {
    pub(super) rows: Vec<OutboxValues>,
    pub(super) alerts: Vec<AlertValues>,
}

impl OutgoingMessages {
    pub(super) fn of_change(
        change: &Change,
        plan: &OfferPlan,
        routes: &ChannelRoutes,
        context: &MessageContext,
    ) -> Self {
        let asked = plan.offers.iter().map(|p| messages::offer_created(&change.order, &p.offer, p.distance_m));
        let mut told: Vec<Message> =
            change.messages.iter().cloned().chain(change.subscriber_copies(routes)).chain(asked).collect();
        let mut steps = Vec::new();
        if let Some(subscription) = routes.subscription_of(change.order.owner.as_deref()) {
            let creation = context.creation.iter().filter(|body| subscription.has_step(body.event)).cloned();
            told.extend(
                creation
                    .map(|body| messages::order_step(subscription.channels_for(ProducerEvent::Step(body.event)), body)),
            );
            let numbers: Vec<i64> = (1..).take(change.events.len()).collect();
            steps = change.step_messages(&subscription, &numbers);
        }
        let alerts = told.iter().filter_map(|message| AlertValues::from_message(change, message, routes)).collect();
        let rows = told.iter().flat_map(|m| OutboxValues::from_message(change, m, routes, &context.dispatchers));
        let of_steps = steps.iter().flat_map(|message| OutboxValues::from_step(change, message, routes));
        Self { rows: rows.chain(of_steps).collect(), alerts }
    }
}
