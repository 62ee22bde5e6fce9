//! Automatic maintenance: the reconciler, cleanup, statistics, and checks of the history.

use std::{ops::Deref, sync::Arc};

use areas::capability::Areas;
use bindings::capability::Bindings;
use desk::capability::Desk;
use foundation::core::Core;
use notify::capability::Notify;
use orders::capability::Orders;
use partner::capability::Partners;
use settings::Config;

/// Automatic maintenance: the reconciler, cleanup, statistics, and checks of the history. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Maintenance(Arc<MaintenanceParts>);

#[derive(Debug, Clone)]
pub struct MaintenanceParts {
    pub core: Core,
    pub config: Arc<Config>,
    pub areas: Areas,
    pub notify: Notify,
    pub orders: Orders,
    pub partners: Partners,
    pub bindings: Bindings,
    pub desk: Desk,
}

impl Maintenance {
    pub fn new(core: &Core, config: &Arc<Config>, desk: &Desk) -> Self {
        Self(Arc::new(MaintenanceParts {
            core: core.clone(),
            config: config.clone(),
            areas: desk.areas.clone(),
            notify: desk.orders.notify.clone(),
            orders: desk.orders.clone(),
            partners: desk.partners.clone(),
            bindings: desk.bindings.clone(),
            desk: desk.clone(),
        }))
    }

    /// Returns a copy that uses these connections and this desk.
    #[must_use]
    pub fn with_core(mut self, core: &Core, desk: &Desk) -> Self {
        let parts = Arc::make_mut(&mut self.0);
        parts.core = core.clone();
        parts.areas = desk.areas.clone();
        parts.orders = desk.orders.clone();
        parts.partners = desk.partners.clone();
        parts.bindings = desk.bindings.clone();
        parts.desk = desk.clone();
        self
    }
}

impl Deref for Maintenance {
    type Target = MaintenanceParts;

    fn deref(&self) -> &MaintenanceParts {
        &self.0
    }
}
