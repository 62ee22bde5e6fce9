//! Subscriptions of producers to events of their orders. Every change of an order looks its owner up here.
//!
//! A process replaces the subscriptions when an endpoint was created, paused or deleted. Each look-up takes a read lock
//! and no statement.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use parking_lot::RwLock;

use super::ProducerEvent;
use crate::order::OrderStep;

/// Endpoints by the name of their producer.
pub type EndpointsByProducer = BTreeMap<String, Vec<EventSubscription>>;

/// Subscription of one endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventSubscription {
    /// Channel of the endpoint.
    pub channel: String,
    pub events: BTreeSet<ProducerEvent>,
}

/// Endpoints of one producer. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducerSubscription(Arc<[EventSubscription]>);

impl ProducerSubscription {
    /// Returns the channels of the endpoints that subscribe to this event.
    pub fn channels_for(&self, event: ProducerEvent) -> Vec<String> {
        let subscribed = self.0.iter().filter(|endpoint| endpoint.events.contains(&event));
        subscribed.map(|endpoint| endpoint.channel.clone()).collect()
    }

    /// Returns whether an endpoint subscribes to this step.
    pub fn has_step(&self, step: OrderStep) -> bool {
        self.0.iter().any(|endpoint| endpoint.events.contains(&ProducerEvent::Step(step)))
    }
}

impl From<Vec<EventSubscription>> for ProducerSubscription {
    fn from(endpoints: Vec<EventSubscription>) -> Self {
        Self(endpoints.into())
    }
}

type Known = BTreeMap<String, ProducerSubscription>;

/// Subscriptions of this process. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Subscriptions(Arc<RwLock<Known>>);

impl Subscriptions {
    pub fn new(endpoints: EndpointsByProducer) -> Self {
        let subscriptions = Self::default();
        subscriptions.replace(endpoints);
        subscriptions
    }

    /// Returns the endpoints of a producer; `None` if it has none.
    pub fn of_producer(&self, name: &str) -> Option<ProducerSubscription> {
        self.0.read().get(name).cloned()
    }

    /// Replaces the endpoints of all producers.
    pub fn replace(&self, endpoints: EndpointsByProducer) {
        let known = endpoints.into_iter().map(|(producer, endpoints)| (producer, endpoints.into()));
        *self.0.write() = known.collect();
    }
}

impl PartialEq for Subscriptions {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || *self.0.read() == *other.0.read()
    }
}

impl Eq for Subscriptions {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_see_replaced_subscriptions() {
        let subscriptions = Subscriptions::default();
        let clone = subscriptions.clone();
        assert_eq!(clone.of_producer("shop"), None);
        let created = ProducerEvent::Step(OrderStep::Created);
        let endpoint = |channel: &str, events: &[ProducerEvent]| EventSubscription {
            channel: channel.to_owned(),
            events: events.iter().copied().collect(),
        };
        let endpoints = vec![endpoint("a", &[created]), endpoint("b", &ProducerEvent::ALL)];
        subscriptions.replace(BTreeMap::from([("shop".to_owned(), endpoints)]));
        let shop = clone.of_producer("shop").unwrap();
        assert_eq!(shop.channels_for(created), ["a", "b"]);
        assert_eq!(shop.channels_for(ProducerEvent::JobIdRetrieved), ["b"]);
        assert!(shop.has_step(OrderStep::Held) && clone.of_producer("other").is_none());
    }
}
