//! Capability for orders that a partner serves: bookings, job ids and callbacks.

use std::{ops::Deref, sync::Arc};

use crate::client::PartnerRegistry;
use foundation::{core::Core, error::ServiceError};
use orders::capability::Orders;
use settings::Config;

/// Bookings, job ids and callbacks for orders that a partner serves. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Partners(Arc<PartnersParts>);

#[derive(Debug, Clone)]
pub struct PartnersParts {
    pub core: Core,
    pub config: Arc<Config>,
    pub orders: Orders,
    pub registry: PartnerRegistry,
}

impl Partners {
    /// Creates the capability. Returns an error if a partner is misconfigured.
    pub fn new(core: &Core, config: &Arc<Config>, orders: &Orders) -> Result<Self, ServiceError> {
        Ok(Self(Arc::new(PartnersParts {
            core: core.clone(),
            config: config.clone(),
            orders: orders.clone(),
            registry: PartnerRegistry::new(&config.partners)?,
        })))
    }

    #[must_use]
    pub fn with_core(mut self, core: &Core, orders: &Orders) -> Self {
        let parts = Arc::make_mut(&mut self.0);
        parts.core = core.clone();
        parts.orders = orders.clone();
        self
    }
}

impl Deref for Partners {
    type Target = PartnersParts;

    fn deref(&self) -> &PartnersParts {
        &self.0
    }
}
