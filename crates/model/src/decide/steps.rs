//! Messages to the producer that owns the order, derived from a change.

use super::Change;
use crate::{
    messages::{
        self, ChannelRoutes, Message, MessageAudience, ProducerEvent, body::StepBody, routes::StepSubscription,
    },
    order::OrderStep,
};

impl Change {
    /// Returns the step of each event; `None` for events that producers do not get.
    pub fn steps(&self) -> Vec<Option<OrderStep>> {
        self.events.iter().map(|event| OrderStep::of_event(event.from, event.to, event.reason)).collect()
    }

    /// Returns the messages to the producer that `subscription` requests. `seqs` are the sequence numbers of the steps
    /// in the feed, in the same order.
    pub fn step_messages(&self, producer: &str, subscription: &StepSubscription, seqs: &[i64]) -> Vec<Message> {
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
            messages::order_step(producer, body)
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
        let Some((producer, subscription)) = routes.subscription_of(self.order.owner.as_deref()) else {
            return Vec::new();
        };
        let is_wanted = |message: &&Message| {
            message.audience == MessageAudience::Producer
                && ProducerEvent::of_message(message.body.kind())
                    .is_some_and(|event| subscription.events.contains(&event))
        };
        self.messages.iter().filter(is_wanted).map(|message| message.for_subscriber(producer, self.at)).collect()
    }
}
