//! Producers that own the endpoints, by channel. The endpoints of one producer share places of delivery.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::RwLock;

/// Channel of the producer that owns the endpoint, by the channel of the endpoint. Clones share the entries.
#[derive(Debug, Clone, Default)]
pub(crate) struct EndpointOwners(Arc<RwLock<BTreeMap<String, String>>>);

impl EndpointOwners {
    /// Returns the group of a channel: the channel of the producer that owns the endpoint. The group of any other channel
    /// is the channel itself.
    pub(crate) fn group_of(&self, channel: &str) -> String {
        self.0.read().get(channel).map_or(channel, String::as_str).to_owned()
    }

    /// Replaces all entries.
    pub(crate) fn replace(&self, owners: BTreeMap<String, String>) {
        *self.0.write() = owners;
    }
}
