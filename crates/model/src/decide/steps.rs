//! Messages to the producer that owns the order, derived from a change.

use super::Change;
use crate::{
    messages::{
        self, ChannelRoutes, Message, MessageAudience, ProducerEvent, body::StepBody,
        subscriptions::ProducerSubscription,
    },
    order::OrderStep,
};

impl Change {
    /// Returns the step of each event; `None` for events that producers do not get.
    pub fn steps(&self) -> Vec<Option<OrderStep>> {
        self.events.iter().map(|event| OrderStep::of_event(event.from, event.to, event.reason)).collect()
    }

    /// Returns the messages that the endpoints of the producer request. `seqs` are the sequence numbers of the steps in
    /// the feed, in the same order.
    pub fn step_messages(&self, subscription: &ProducerSubscription, seqs: &[i64]) -> Vec<Message> {
        let steps = self.events.iter().zip(self.steps()).filter_map(|(event, step)| Some((event, step?)));
        let told = steps.zip(seqs).filter(|((_, step), _)| subscription.has_step(*step));
        let messages = told.map(|((event, step), seq)| {
            let body = StepBody {
                event: step,
                version: messages::STEP_VERSION,
                seq: *seq,
                order_id: self.order.id.clone(),
                status: event.to,
                previous_status: Some(event.from),
                reason: event.reason,
                attempt_no: event.attempt_no,
                driver_id: self.order.driver_id.clone(),
                changed: self.changed_fields(step),
                has_contents: self.order.has_details,
                timestamp: self.at,
            };
            messages::order_step(subscription.channels_for(ProducerEvent::Step(step)), body)
        });
        messages.collect()
    }

    /// Returns the names of the members that this step changed.
    fn changed_fields(&self, step: OrderStep) -> Vec<String> {
        let contents = self.contents.as_ref().filter(|_| step == OrderStep::Updated);
        contents.into_iter().flat_map(|change| &change.fields).map(|&name| name.to_owned()).collect()
    }

    /// Returns copies of the producer messages for the producer of this order, if it subscribes to them.
    pub fn subscriber_copies(&self, routes: &ChannelRoutes) -> Vec<Message> {
        let Some(subscription) = routes.subscription_of(self.order.owner.as_deref()) else {
            return Vec::new();
        };
        let told = self.messages.iter().filter(|message| message.audience == MessageAudience::Producer);
        let copies = told.filter_map(|message| {
            let channels = subscription.channels_for(ProducerEvent::of_message(message.body.kind())?);
            (!channels.is_empty()).then(|| message.for_subscriber(channels, self.at))
        });
        copies.collect()
    }
}
