//! Staff functions: single orders and jobs, plans, dead letters, reports, privacy.

use std::{ops::Deref, sync::Arc};

use crate::reports::page_changes::ChangeBoard;
use areas::capability::Areas;
use bindings::capability::Bindings;
use foundation::core::Core;
use orders::capability::Orders;
use partner::capability::Partners;
use settings::Config;

/// Staff functions: single orders and jobs, plans, dead letters, reports, privacy. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Desk(Arc<DeskParts>);

#[derive(Debug, Clone)]
pub struct DeskParts {
    pub core: Core,
    pub config: Arc<Config>,
    pub areas: Areas,
    pub orders: Orders,
    pub partners: Partners,
    pub bindings: Bindings,
    pub changes: ChangeBoard,
}

impl Desk {
    pub fn new(core: &Core, config: &Arc<Config>, partners: &Partners, bindings: &Bindings) -> Self {
        Self(Arc::new(DeskParts {
            core: core.clone(),
            config: config.clone(),
            areas: partners.orders.areas.clone(),
            orders: partners.orders.clone(),
            partners: partners.clone(),
            bindings: bindings.clone(),
            changes: ChangeBoard::default(),
        }))
    }

    /// Returns a copy that uses these connections, partners and bindings.
    #[must_use]
    pub fn with_core(mut self, core: &Core, partners: &Partners, bindings: &Bindings) -> Self {
        let parts = Arc::make_mut(&mut self.0);
        parts.core = core.clone();
        parts.areas = partners.orders.areas.clone();
        parts.orders = partners.orders.clone();
        parts.partners = partners.clone();
        parts.bindings = bindings.clone();
        self
    }
}

impl Deref for Desk {
    type Target = DeskParts;

    fn deref(&self) -> &DeskParts {
        &self.0
    }
}
