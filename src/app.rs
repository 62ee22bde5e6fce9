//! What every command, handler and request works with.

use std::sync::Arc;

use anyhow::Context;
use sqlx::PgPool;
use workers::Store;

use crate::{config::Config, db, notifications::Channels, partner::Partners, people::offer_board::OfferBoard};

/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct App {
    pub db: PgPool,
    pub store: Store,
    pub config: Arc<Config>,
    pub channels: Channels,
    pub partners: Partners,
    pub offers: OfferBoard,
}

impl App {
    /// Connects to both servers and refuses a database whose schema this binary does not know.
    pub async fn connect(config: Config) -> anyhow::Result<Self> {
        let db = db::connect(&config.database).await?;
        db::check_schema(&db).await?;
        let store = Store::with_config(config.redis.of_store()?)?;
        store.ping().await.context("Redis is needed for the timers of orders")?;
        Self::new(config, db, store)
    }

    pub fn new(config: Config, db: PgPool, store: Store) -> anyhow::Result<Self> {
        let channels = config.channels()?;
        let partners = Partners::new(&config.partners)?;
        Ok(Self { db, store, config: Arc::new(config), channels, partners, offers: OfferBoard::default() })
    }
}
