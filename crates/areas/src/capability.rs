//! Areas, their rules, and the admission of orders.

use std::{ops::Deref, sync::Arc};

use model::{order::Order, policy::DispatchPolicy};

use crate::{rules::RulesHandle, standings::StandingsCache, tally::AdmissionTally};
use foundation::core::Core;
use settings::Config;

/// Areas, their rules, and the admission of orders. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Areas(Arc<AreasParts>);

#[derive(Debug, Clone)]
pub struct AreasParts {
    pub core: Core,
    pub config: Arc<Config>,
    pub rules: RulesHandle,
    pub standings: StandingsCache,
    pub tally: AdmissionTally,
}

impl Areas {
    pub fn new(core: &Core, config: &Arc<Config>) -> Self {
        Self(Arc::new(AreasParts {
            core: core.clone(),
            config: config.clone(),
            rules: RulesHandle::default(),
            standings: StandingsCache::default(),
            tally: AdmissionTally::default(),
        }))
    }

    /// Returns a copy that uses these connections.
    #[must_use]
    pub fn with_core(mut self, core: &Core) -> Self {
        Arc::make_mut(&mut self.0).core = core.clone();
        self
    }

    /// Returns the dispatch policy of an order. Values of its area override those of its service type, which override
    /// the installation's.
    pub fn policy_for_order(&self, order: &Order) -> DispatchPolicy {
        let policy = self.config.policy_for_type(&order.service_type);
        let Some(area) = &order.area_id else { return policy };
        let own = self.rules.get().durations_for(area, &order.service_type);
        DispatchPolicy {
            attempt: own.attempt.unwrap_or(policy.attempt),
            lifetime: own.lifetime.unwrap_or(policy.lifetime),
            retry: own.retry.map_or(policy.retry, |retry| vec![retry]),
            ..policy
        }
    }
}

impl Deref for Areas {
    type Target = AreasParts;

    fn deref(&self) -> &AreasParts {
        &self.0
    }
}
