//! Links with which customers follow their orders. Design: docs/design/driver-and-customer-pages.md.
//!
//! * [`token`]: the token of a link, which contains the order in encrypted form. [`order`]: the part of an order that the page
//!   shows.
//!
//! Postgres stores the key of the tokens, so all processes issue and accept the same ones. It stores no token.

pub mod order;
pub mod token;

use std::sync::Arc;

use tokio::sync::OnceCell;

use foundation::db::Pool;
use token::TrackingKey;

/// The key of this process, loaded at the first use. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct TrackingLinks(Arc<OnceCell<TrackingKey>>);

impl TrackingLinks {
    /// Returns the key. A failed load is repeated at the next call.
    pub async fn load_key(&self, db: &Pool) -> Result<&TrackingKey, sqlx::Error> {
        self.0.get_or_try_init(|| read_key(db)).await
    }
}

async fn read_key(db: &Pool) -> Result<TrackingKey, sqlx::Error> {
    let secret: Vec<u8> = sqlx::query_scalar(
        "-- tracking key
         SELECT secret FROM tracking_key",
    )
    .fetch_one(db)
    .await?;
    TrackingKey::new(&secret).ok_or_else(|| sqlx::Error::Decode("the tracking key is unusable".into()))
}
