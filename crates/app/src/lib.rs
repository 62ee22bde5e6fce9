//! `App`: all capabilities on one set of connections. Commands, the HTTP API, the console and workers use it.
//!
//! * [`settings`]: loads the configuration and builds the services to check it.
//! * [`metrics_list`]: descriptions of all metrics.

// Futures of handlers are nested deeper than the default limit.
#![recursion_limit = "256"]

pub mod metrics_list;
pub mod settings;

use std::{
    ops::Deref,
    sync::Arc,
    time::{Duration, Instant},
};

use model::{chance::Rng, clock::Clock, messages::subscriptions::Subscriptions, scope::Scope};
use serde_json::json;

use accounts::capability::Accounts;
use areas::capability::Areas;
use bindings::capability::Bindings;
use desk::capability::Desk;
use foundation::{
    core::{Core, CoreParts},
    db::{self, Pool},
    error::{DuringContext, ServiceError},
    shard_map::QueueShards,
    system::DatabaseClock,
};
use maintenance::capability::Maintenance;
use notify::capability::Notify;
use orders::capability::Orders;
use partner::capability::Partners;
use queue::{Store, StoreError};
use settings::Config;

/// Context of an error if Redis cannot be used at startup.
const STARTING: &str = "Redis is needed for the timers of orders";
/// Maximum time that `serve` waits at startup for an unresponsive Redis.
const REDIS_START_WAIT: Duration = Duration::from_secs(10);

/// All capabilities. Cheap to clone: each request and job clones it several times.
#[derive(Debug, Clone)]
pub struct App(Arc<AppParts>);

#[derive(Debug, Clone)]
pub struct AppParts {
    pub config: Arc<Config>,
    pub core: Core,
    pub accounts: Accounts,
    pub areas: Areas,
    pub notify: Notify,
    pub orders: Orders,
    pub partners: Partners,
    pub bindings: Bindings,
    pub desk: Desk,
    pub maintenance: Maintenance,
}

impl App {
    /// Connects to both servers. Refuses a database with an incompatible schema.
    pub async fn connect(config: Config) -> Result<Self, ServiceError> {
        let app = Self::connect_postgres(config).await?;
        app.core.store.ping().await.during(|| STARTING.to_owned())?;
        Ok(app)
    }

    /// Connects like [`connect`](Self::connect), but accepts an unavailable Redis, which is used once it responds. A
    /// refused login is an error, because the setting is probably wrong. A slow Redis has some seconds to respond.
    pub async fn connect_without_redis(config: Config) -> Result<Self, ServiceError> {
        let app = Self::connect_postgres(config).await?;
        let start = Instant::now();
        let error = loop {
            match app.core.store.ping().await {
                Ok(_) => return Ok(app),
                Err(StoreError::Slow { .. }) if start.elapsed() < REDIS_START_WAIT => {}
                Err(error) => break error,
            }
        };
        if !error.is_transient() || matches!(error, StoreError::Login { .. }) {
            return Err(ServiceError::from(error).during(STARTING.to_owned()));
        }
        tracing::warn!(%error, "Redis does not respond. Orders are accepted without it, and their timers are enqueued later.");
        Ok(app)
    }

    /// Connects to Postgres like [`connect`](Self::connect). The connection to Redis is opened on first use.
    pub async fn connect_postgres(config: Config) -> Result<Self, ServiceError> {
        let db = db::connect_pool(&config.database).await?;
        db::check_schema(&db).await?;
        let store = Store::with_config(config.redis.to_store_config()?)?;
        let app = Self::new(config, db, store)?;
        app.areas.reload_if_changed().await?;
        app.notify.endpoints.reload_if_changed(&app.core).await?;
        app.core.shards.reload(&app.core.db).await?;
        Ok(app)
    }

    /// Builds every capability. Opens no connection. Returns an error if the configuration cannot be used.
    pub fn new(mut config: Config, db: Pool, store: Store) -> Result<Self, ServiceError> {
        config.notifications.subscriptions = Subscriptions::new(config.declared_endpoints());
        config.notifications.pushes_offers = config.push.private_key_file.is_some();
        let config = Arc::new(config);
        let core = Core::new(db, store, &config.database);
        let accounts = Accounts::new(&core, &config)?;
        let areas = Areas::new(&core, &config);
        let notify = Notify::new(&core, &config)?;
        let orders = Orders::new(&core, &config, &areas, &notify)?;
        let partners = Partners::new(&core, &config, &orders)?;
        let bindings = Bindings::new(&core, &config)?;
        let desk = Desk::new(&core, &config, &partners, &bindings);
        let maintenance = Maintenance::new(&core, &config, &desk);
        Ok(Self(Arc::new(AppParts {
            config,
            core,
            accounts,
            areas,
            notify,
            orders,
            partners,
            bindings,
            desk,
            maintenance,
        })))
    }

    /// Returns a copy whose capabilities use other connections or another clock.
    #[must_use]
    pub fn with_core(mut self, change: impl FnOnce(&mut CoreParts)) -> Self {
        let core = self.core.clone().with(change);
        let areas = self.areas.clone().with_core(&core);
        let orders = self.orders.clone().with_core(&core, &areas);
        let partners = self.partners.clone().with_core(&core, &orders);
        let bindings = self.bindings.clone().with_core(&core);
        let desk = self.desk.clone().with_core(&core, &partners, &bindings);
        let maintenance = self.maintenance.clone().with_core(&core, &desk);
        let parts = Arc::make_mut(&mut self.0);
        *parts = AppParts { core, areas, orders, partners, bindings, desk, maintenance, ..parts.clone() };
        self
    }

    /// Returns a copy whose connections are read-only. The lookup of a binding by its id still uses the normal
    /// connections, because it is batched with other lookups.
    #[must_use]
    pub fn reading(self) -> Self {
        self.with_core(|core| core.db = core.read_only.clone())
    }

    /// Returns a copy that uses the read-only connections of pages.
    #[must_use]
    pub fn showing(self) -> Self {
        self.with_core(|core| core.db = core.pages.clone())
    }

    /// Returns a copy that reads only the orders of this scope, over read-only connections.
    #[must_use]
    pub fn scoped(self, scope: &Scope) -> Self {
        let scope = json!(scope).to_string();
        self.with_core(|core| {
            core.read_only = core.read_only.scoped(&scope);
            core.pages = core.pages.scoped(&scope);
            core.db = core.read_only.clone();
        })
    }

    /// Returns a copy that uses another Redis. It is the only shard until Postgres is queried.
    #[must_use]
    pub fn with_store(self, store: Store) -> Self {
        self.with_core(|core| {
            core.shards = QueueShards::new(&store);
            core.store = store;
        })
    }

    /// Returns a copy that uses this clock. Both copies share the area rules.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        self.with_core(|core| {
            core.database_clock = DatabaseClock::new(clock.clone());
            core.clock = clock;
        })
    }

    /// Returns a copy that uses this generator for the jitter of pauses.
    #[must_use]
    pub fn with_rng(self, rng: Arc<dyn Rng>) -> Self {
        self.with_core(|core| core.rng = rng)
    }
}

impl Deref for App {
    type Target = AppParts;

    fn deref(&self) -> &AppParts {
        &self.0
    }
}
