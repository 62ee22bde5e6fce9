//! The capability of orders: their rows, timers and offers, and the drivers who take them.

use std::{ops::Deref, sync::Arc};

use crate::{
    feed::FeedBoard,
    first_tries::FirstTries,
    fleet::candidate_search::CandidateSearch,
    gate_views::GateViews,
    kept::KeptOrders,
    late_work::LateWork,
    offers::{board::OfferBoard, free_drivers::FreeDriverSearch},
    order_store::OrderStore,
    payments::PaymentService,
    timer_calls::TimerCalls,
    tracking::TrackingLinks,
    unsent_timers::UnsentTimers,
};
use areas::capability::Areas;
use foundation::{core::Core, error::ServiceError};
use notify::capability::Notify;
use settings::Config;

/// Rows, timers and offers of orders, and the drivers who take them. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Orders(Arc<OrdersParts>);

#[derive(Debug, Clone)]
pub struct OrdersParts {
    pub core: Core,
    pub config: Arc<Config>,
    pub areas: Areas,
    pub notify: Notify,
    pub rows: OrderStore,
    pub kept: KeptOrders,
    pub first_tries: FirstTries,
    pub candidates: CandidateSearch,
    pub free_drivers: FreeDriverSearch,
    pub offers: OfferBoard,
    pub gate_views: GateViews,
    pub feed: FeedBoard,
    pub timer_calls: TimerCalls,
    pub unsent: UnsentTimers,
    pub late_work: LateWork,
    pub tracking: TrackingLinks,
    /// Service that pays refunds. `None` if people pay them.
    pub payments: Option<PaymentService>,
}

impl Orders {
    /// Creates the capability. Returns an error if the payment service is misconfigured.
    pub fn new(core: &Core, config: &Arc<Config>, areas: &Areas, notify: &Notify) -> Result<Self, ServiceError> {
        Ok(Self(Arc::new(OrdersParts {
            core: core.clone(),
            config: config.clone(),
            areas: areas.clone(),
            notify: notify.clone(),
            rows: OrderStore::new(&core.batches),
            kept: KeptOrders::default(),
            first_tries: FirstTries::default(),
            candidates: CandidateSearch::new(&core.batches),
            free_drivers: FreeDriverSearch::new(&core.batches),
            offers: OfferBoard::default(),
            gate_views: GateViews::default(),
            feed: FeedBoard::default(),
            timer_calls: TimerCalls::new(&core.shards),
            unsent: UnsentTimers::default(),
            late_work: LateWork::default(),
            tracking: TrackingLinks::default(),
            payments: PaymentService::from_config(&config.payments)?,
        })))
    }

    #[must_use]
    pub fn with_core(mut self, core: &Core, areas: &Areas) -> Self {
        let parts = Arc::make_mut(&mut self.0);
        if !parts.core.shards.is_same(&core.shards) {
            parts.timer_calls = TimerCalls::new(&core.shards);
        }
        parts.core = core.clone();
        parts.areas = areas.clone();
        self
    }

    /// Returns whether new work should be refused because too many requests wait for Postgres.
    pub fn is_overloaded(&self) -> bool {
        self.core.db.is_overloaded() || self.core.batches.is_overloaded() || self.rows.is_overloaded()
    }

    /// Returns whether a creation should be refused because due jobs are late. Refuses only a share at random while the
    /// lateness is below its bound.
    pub fn refuses_creation(&self) -> bool {
        let share = self.late_work.refused_share(self.config.http.max_lateness);
        share > 0.0 && self.core.rng.next_unit() < share
    }
}

impl Deref for Orders {
    type Target = OrdersParts;

    fn deref(&self) -> &OrdersParts {
        &self.0
    }
}
