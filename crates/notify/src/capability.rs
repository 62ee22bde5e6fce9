//! Message channels and the delivery of outbox messages.

use std::{ops::Deref, sync::Arc};

use model::ids::TicketId;

use crate::{
    channels::{self, DeliveryError, LanePlace, MessageChannels, OutgoingMessage, push::vapid::VapidKey},
    deliveries::DeliveryStore,
    endpoints::{EndpointId, owners::EndpointOwners, sending::open_endpoint, subscribed::SubscribedEndpoints},
};
use foundation::{core::Core, db::Pool, error::ServiceError};
use settings::Config;

/// Message channels and the delivery of outbox messages. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Notify(Arc<NotifyParts>);

#[derive(Debug, Clone)]
pub struct NotifyParts {
    pub channels: MessageChannels,
    pub deliveries: DeliveryStore,
    pub endpoints: SubscribedEndpoints,
    db: Pool,
    /// The setting `http.local_webhooks`.
    allow_local: bool,
}

impl Notify {
    /// Builds the configured channels. Fails if one of them cannot be built. The subscriptions of endpoints are read later.
    pub fn new(core: &Core, config: &Config) -> Result<Self, ServiceError> {
        let owners = EndpointOwners::default();
        let channels = channels::build_channels(config)?.with_owners(owners.clone());
        let channels = match VapidKey::from_config(&config.push)? {
            Some(key) => channels.with_push(&core.db, key, config.push.allow_private),
            None => channels,
        };
        Ok(Self(Arc::new(NotifyParts {
            channels,
            deliveries: DeliveryStore::new(&core.batches),
            endpoints: SubscribedEndpoints::new(
                &config.notifications.subscriptions,
                config.declared_endpoints(),
                owners,
            ),
            db: core.db.clone(),
            allow_local: config.http.local_webhooks,
        })))
    }

    /// Delivers one message over one channel, using its place on the lane. The endpoint of a channel is read first.
    /// Returns the ticket that the message opened, if the response contains one.
    pub async fn deliver_message(
        &self,
        place: LanePlace,
        channel: &str,
        parcel: &OutgoingMessage<'_>,
    ) -> Result<Option<TicketId>, DeliveryError> {
        let Some(id) = EndpointId::of_channel(channel) else {
            return self.channels.deliver_message(place, channel, parcel).await;
        };
        let endpoint = open_endpoint(&self.db, id, self.allow_local).await?;
        self.channels.deliver_event(place, &endpoint, parcel).await
    }
}

impl Deref for Notify {
    type Target = NotifyParts;

    fn deref(&self) -> &NotifyParts {
        &self.0
    }
}
