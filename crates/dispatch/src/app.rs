//! What every command, handler and request works with.

use std::{sync::Arc, time::Duration};

use model::{chance::Rng, clock::Clock, order::Order, policy::DispatchPolicy};
use redis::{Cmd, FromRedisValue};
use workers::Store;

use crate::{
    accounts::{key_use::KeyUse, known_keys::KnownKeys},
    areas::{rules::RulesHandle, standings::StandingsCache},
    channels::{self, MessageChannels},
    config::Config,
    db::{self, Pool, readiness::PostgresReadiness},
    error::{DuringContext, ServiceError},
    loops::LoopRegistry,
    offers::board::OfferBoard,
    partner_client::PartnerRegistry,
    request_limits::RequestLimits,
    system::{SystemClock, SystemRng},
    unsent_timers::UnsentTimers,
};

/// See [`App::patience`].
const HINT_TIMEOUT: Duration = Duration::from_millis(50);

/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct App {
    pub db: Pool,
    /// See [`db::upkeep_pool`].
    pub upkeep: Pool,
    pub readiness: PostgresReadiness,
    pub loops: LoopRegistry,
    pub store: Store,
    pub config: Arc<Config>,
    pub channels: MessageChannels,
    pub partners: PartnerRegistry,
    pub offers: OfferBoard,
    pub rules: RulesHandle,
    pub standings: StandingsCache,
    pub keys: KnownKeys,
    pub key_use: KeyUse,
    pub limits: RequestLimits,
    pub unsent: UnsentTimers,
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
        let db = db::connect_pool(&config.database).await?;
        db::check_schema(&db).await?;
        let store = Store::with_config(config.redis.to_store_config()?)?;
        store.ping().await.during(|| "Redis is needed for the timers of orders".to_owned())?;
        let app = Self::new(config, db, store)?;
        app.rules.reload_if_changed(&app.db, &app.config.admission).await?;
        Ok(app)
    }

    /// Asks Redis for what Postgres knows, too, or could do without: soon, or not at all.
    pub async fn query_optional<T: FromRedisValue>(&self, name: &'static str, command: &Cmd) -> Result<T, String> {
        match tokio::time::timeout(self.patience, self.store.run_command(name, command)).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err(format!("Redis took longer than {:?}", self.patience)),
        }
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

    pub fn new(config: Config, db: Pool, store: Store) -> Result<Self, ServiceError> {
        let channels = channels::build_channels(&config)?;
        let partners = PartnerRegistry::new(&config.partners)?;
        let upkeep = db::upkeep_pool(&db);
        let limits = RequestLimits::new(&config.http);
        Ok(Self {
            db,
            readiness: PostgresReadiness::new(upkeep.clone()),
            upkeep,
            loops: LoopRegistry::default(),
            store,
            config: Arc::new(config),
            channels,
            partners,
            offers: OfferBoard::default(),
            rules: RulesHandle::default(),
            standings: StandingsCache::default(),
            keys: KnownKeys::default(),
            key_use: KeyUse::default(),
            limits,
            unsent: UnsentTimers::default(),
            clock: Arc::new(SystemClock),
            rng: Arc::new(SystemRng),
            patience: HINT_TIMEOUT,
        })
    }

    /// Takes the time from this clock.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { rules: RulesHandle::with_clock(clock.clone()), clock, ..self }
    }

    /// Draws the jitter of pauses from here.
    #[must_use]
    pub fn with_rng(self, rng: Arc<dyn Rng>) -> Self {
        Self { rng, ..self }
    }
}
