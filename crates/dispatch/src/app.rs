//! What every command, handler and request works with.

use std::{
    ops::Deref,
    sync::Arc,
    time::{Duration, Instant},
};

use model::{chance::Rng, clock::Clock, order::Order, policy::DispatchPolicy};
use redis::{Cmd, FromRedisValue};
use tokio_util::task::TaskTracker;
use workers::{Shards, Store, StoreError};

use crate::{
    accounts::{key_use::KeyUse, known_keys::KnownKeys},
    areas::{rules::RulesHandle, standings::StandingsCache, tally::AdmissionTally},
    binding_store::{BindingStore, mirror::BindingMirror},
    channels::{self, MessageChannels},
    config::Config,
    gate_views::GateViews,
    notifications::deliveries::DeliveryStore,
    offers::{board::OfferBoard, free_drivers::FreeDriverSearch},
    oidc::OidcProvider,
    order_feed::FeedBoard,
    order_store::OrderStore,
    otp_seal::OtpSealer,
    partner_client::PartnerRegistry,
    payment_client::PaymentService,
    provider_client::ProviderRegistry,
    reports::page_changes::ChangeBoard,
    request_limits::RequestLimits,
    shard_map::QueueShards,
    timer_calls::TimerCalls,
    unsent_timers::UnsentTimers,
};
use foundation::{
    db::{self, Pool, readiness::PostgresReadiness},
    error::{DuringContext, ServiceError},
    idempotency_rows::IdempotencyStore,
    loops::LoopRegistry,
    system::{SystemClock, SystemRng},
};

/// What is being done when Redis cannot be used at the start.
const STARTING: &str = "Redis is needed for the timers of orders";
/// A Redis that hangs delays the start of `serve` by so long.
const REDIS_START_WAIT: Duration = Duration::from_secs(10);

/// See [`App::patience`].
const HINT_TIMEOUT: Duration = Duration::from_millis(50);

/// Cheap to clone: every request and job does it several times.
#[derive(Debug, Clone)]
pub struct App(Arc<AppParts>);

/// What an [`App`] holds.
#[derive(Debug, Clone)]
pub struct AppParts {
    pub db: Pool,
    /// See [`db::batch_pool`].
    pub batches: Pool,
    /// See [`db::upkeep_pool`].
    pub upkeep: Pool,
    /// See [`db::read_only_pool`].
    pub read_only: Pool,
    /// See [`db::page_pool`].
    pub pages: Pool,
    pub readiness: PostgresReadiness,
    pub loops: LoopRegistry,
    /// The control shard, and what lies in Redis beside the queue. Jobs go through [`App::queue`].
    pub store: Store,
    pub shards: QueueShards,
    pub config: Arc<Config>,
    pub channels: MessageChannels,
    pub partners: PartnerRegistry,
    /// Who pays back; `None`: people do.
    pub payments: Option<PaymentService>,
    pub providers: ProviderRegistry,
    pub otps: Arc<OtpSealer>,
    /// Where staff sign in beside keys; `None`: nowhere.
    pub oidc: Option<OidcProvider>,
    pub bindings: BindingStore,
    pub orders: OrderStore,
    pub free_drivers: FreeDriverSearch,
    pub idempotency: IdempotencyStore,
    pub deliveries: DeliveryStore,
    pub binding_mirror: BindingMirror,
    pub offers: OfferBoard,
    pub feed: FeedBoard,
    pub changes: ChangeBoard,
    pub rules: RulesHandle,
    pub standings: StandingsCache,
    pub tally: AdmissionTally,
    pub keys: KnownKeys,
    pub key_use: KeyUse,
    pub limits: RequestLimits,
    pub timer_calls: TimerCalls,
    pub unsent: UnsentTimers,
    pub gate_views: GateViews,
    /// What goes on when its request is answered. A process that ends waits for it.
    pub behind_answers: TaskTracker,
    /// This machine's clock. Deadlines go by Postgres' clock.
    pub clock: Arc<dyn Clock>,
    /// What pauses draw their jitter from.
    pub rng: Arc<dyn Rng>,
    /// Redis has this time to answer where Postgres can answer, too.
    pub patience: Duration,
}

impl App {
    /// Connects to both servers and refuses a database whose schema this binary does not know.
    pub async fn connect(config: Config) -> Result<Self, ServiceError> {
        let app = Self::connect_postgres(config).await?;
        app.store.ping().await.during(|| STARTING.to_owned())?;
        Ok(app)
    }

    /// As [`connect`](Self::connect), but Redis may be away; it is used once it answers. One that refuses the login is an error:
    /// the setting is wrong, most likely. One that is slow has some seconds to say so.
    pub async fn connect_without_redis(config: Config) -> Result<Self, ServiceError> {
        let app = Self::connect_postgres(config).await?;
        let start = Instant::now();
        let error = loop {
            match app.store.ping().await {
                Ok(_) => return Ok(app),
                Err(StoreError::Slow { .. }) if start.elapsed() < REDIS_START_WAIT => {}
                Err(error) => break error,
            }
        };
        if !error.is_transient() || matches!(error, StoreError::Login { .. }) {
            return Err(ServiceError::from(error).during(STARTING.to_owned()));
        }
        tracing::warn!(%error, "Redis does not answer. Orders are taken without it, and their timers follow.");
        Ok(app)
    }

    async fn connect_postgres(config: Config) -> Result<Self, ServiceError> {
        let db = db::connect_pool(&config.database).await?;
        db::check_schema(&db).await?;
        let store = Store::with_config(config.redis.to_store_config()?)?;
        let app = Self::new(config, db, store)?;
        app.rules.reload_if_changed(&app.db, &app.config.admission).await?;
        app.shards.reload(&app.db).await?;
        Ok(app)
    }

    /// The queue: all shards there are now.
    pub fn queue(&self) -> Shards {
        self.shards.get()
    }

    /// Asks Redis for what Postgres knows, too, or could do without: soon, or not at all.
    pub async fn query_optional<T: FromRedisValue>(&self, name: &'static str, command: &Cmd) -> Result<T, String> {
        match tokio::time::timeout(self.patience, self.store.run_command(name, command)).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err(format!("Redis took longer than {:?}", self.patience)),
        }
    }

    /// Returns whether one more request had better be refused: others wait too long for Postgres.
    pub fn is_overloaded(&self) -> bool {
        self.db.is_overloaded() || self.batches.is_overloaded() || self.orders.is_overloaded()
    }

    /// The durations and choices of an order: its area's, its service type's, the installation's.
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

    pub fn new(mut config: Config, db: Pool, store: Store) -> Result<Self, ServiceError> {
        config.notifications.subscriptions = config.step_subscriptions();
        let channels = channels::build_channels(&config)?;
        let partners = PartnerRegistry::new(&config.partners)?;
        let payments = PaymentService::from_config(&config.payments)?;
        let providers = ProviderRegistry::new(&config.providers)?;
        let otps = Arc::new(OtpSealer::new(&config.bindings)?);
        let oidc = OidcProvider::from_config(&config.console)?;
        let batches = db::batch_pool(&db, &config.database);
        let bindings = BindingStore::new(&batches, &config.notifications);
        let orders = OrderStore::new(&batches);
        let free_drivers = FreeDriverSearch::new(&batches);
        let idempotency = IdempotencyStore::new(&batches);
        let deliveries = DeliveryStore::new(&batches);
        let binding_mirror = BindingMirror::new(&store);
        let shards = QueueShards::new(&store);
        let timer_calls = TimerCalls::new(&shards);
        let upkeep = db::upkeep_pool(&db);
        let read_only = db::read_only_pool(&db);
        let pages = db::page_pool(&db);
        let limits = RequestLimits::new(&config.http);
        Ok(Self(Arc::new(AppParts {
            db,
            batches,
            readiness: PostgresReadiness::new(upkeep.clone()),
            upkeep,
            read_only,
            pages,
            loops: LoopRegistry::default(),
            shards,
            store,
            config: Arc::new(config),
            channels,
            partners,
            payments,
            providers,
            otps,
            oidc,
            bindings,
            orders,
            free_drivers,
            idempotency,
            deliveries,
            binding_mirror,
            offers: OfferBoard::default(),
            feed: FeedBoard::default(),
            changes: ChangeBoard::default(),
            rules: RulesHandle::default(),
            standings: StandingsCache::default(),
            tally: AdmissionTally::default(),
            keys: KnownKeys::default(),
            key_use: KeyUse::default(),
            limits,
            timer_calls,
            unsent: UnsentTimers::default(),
            gate_views: GateViews::default(),
            behind_answers: TaskTracker::new(),
            clock: Arc::new(SystemClock),
            rng: Arc::new(SystemRng),
            patience: HINT_TIMEOUT,
        })))
    }

    /// Returns when every connection to Postgres is closed.
    pub async fn close(&self) {
        for pool in [&self.db, &self.batches, &self.upkeep, &self.read_only, &self.pages] {
            pool.close().await;
        }
    }

    /// The same application with other parts.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut AppParts)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// The same application on connections that take no writes. Bindings that are looked up by id share the statement of all
    /// who look one up, on the usual connections.
    #[must_use]
    pub fn reading(self) -> Self {
        self.with(|parts| parts.db = parts.read_only.clone())
    }

    /// As [`reading`](Self::reading), on the connections of pages.
    #[must_use]
    pub fn showing(self) -> Self {
        self.with(|parts| parts.db = parts.pages.clone())
    }

    /// The same application on another store, which is its only shard until Postgres was asked.
    #[must_use]
    pub fn with_store(self, store: Store) -> Self {
        self.with(|parts| {
            parts.shards = QueueShards::new(&store);
            parts.timer_calls = TimerCalls::new(&parts.shards);
            parts.store = store;
        })
    }

    /// Takes the time from this clock.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        self.with(|parts| {
            parts.rules = RulesHandle::with_clock(clock.clone());
            parts.clock = clock;
        })
    }

    /// Draws the jitter of pauses from here.
    #[must_use]
    pub fn with_rng(self, rng: Arc<dyn Rng>) -> Self {
        self.with(|parts| parts.rng = rng)
    }
}

impl Deref for App {
    type Target = AppParts;

    fn deref(&self) -> &AppParts {
        &self.0
    }
}
