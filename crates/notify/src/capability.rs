//! Message channels and the delivery of outbox messages.

use std::{ops::Deref, sync::Arc};

use crate::{
    channels::{self, MessageChannels},
    deliveries::DeliveryStore,
};
use foundation::{core::Core, error::ServiceError};
use settings::Config;

/// Message channels and the delivery of outbox messages. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Notify(Arc<NotifyParts>);

#[derive(Debug, Clone)]
pub struct NotifyParts {
    pub channels: MessageChannels,
    pub deliveries: DeliveryStore,
}

impl Notify {
    /// Builds the configured channels. Fails if one of them cannot be built.
    pub fn new(core: &Core, config: &Config) -> Result<Self, ServiceError> {
        Ok(Self(Arc::new(NotifyParts {
            channels: channels::build_channels(config)?,
            deliveries: DeliveryStore::new(&core.batches),
        })))
    }
}

impl Deref for Notify {
    type Target = NotifyParts;

    fn deref(&self) -> &NotifyParts {
        &self.0
    }
}
