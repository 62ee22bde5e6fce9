//! Bearer keys: random, shown once, stored as SHA-256.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use sqlx::PgPool;
use uuid::Uuid;

use super::{
    actor::{Actor, ActorRole},
    key_admin::{self, KeyError, NewKey},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, sqlx::Type, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum Role {
    /// Creates and cancels orders.
    Producer,
    /// Answers offers and carries out orders, for one driver.
    Driver,
    /// Decides on orders that wait for a person.
    Dispatcher,
    /// Reads everything about orders.
    Support,
    /// Reads everything, runs the system.
    Operator,
    /// May do all of it.
    Admin,
}

/// A key as it is listed: everything but the key.
#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
pub struct ApiKey {
    pub id: Uuid,
    pub name: String,
    pub role: Role,
    pub driver_id: Option<String>,
    pub created_at: DateTime<Utc>,
    pub revoked_at: Option<DateTime<Utc>>,
}

impl ApiKey {
    /// How the history names the holder.
    pub fn actor(&self) -> Actor {
        let role = match self.role {
            Role::Producer => ActorRole::Producer,
            Role::Driver => ActorRole::Driver,
            Role::Dispatcher => ActorRole::Dispatcher,
            Role::Support => ActorRole::Support,
            Role::Operator => ActorRole::Operator,
            Role::Admin => ActorRole::Admin,
        };
        Actor::new(role, self.driver_id.as_deref().unwrap_or(&self.name), Some(self.id))
    }
}

/// A new key: 256 random bits, with a prefix that secret scanners can look for.
pub fn generate() -> String {
    let random: [u8; 32] = rand::random();
    format!("dq_{}", hex::encode(random))
}

/// What is stored of a key. A plain hash suffices, for a key is random and not a password; and looking the hash up
/// leaks nothing about the key by timing.
pub fn hash(key: &str) -> Vec<u8> {
    Sha256::digest(key.as_bytes()).to_vec()
}

/// Makes a key that does not expire. The text returned is nowhere else.
pub async fn create(
    db: &PgPool,
    name: &str,
    role: Role,
    driver_id: Option<&str>,
) -> Result<(ApiKey, String), KeyError> {
    key_admin::issue(&mut *db.acquire().await?, &NewKey { name, role, driver_id, expires_in: None }).await
}

/// The key's owner, unless it is unknown or revoked.
pub async fn find(db: &PgPool, key: &str) -> Result<Option<ApiKey>, sqlx::Error> {
    sqlx::query_as(
        "-- find api key
         SELECT id, name, role, driver_id, created_at, revoked_at FROM valid_api_keys WHERE sha256 = $1",
    )
    .bind(hash(key))
    .fetch_optional(db)
    .await
}

/// Keys this process has seen lately, so that not every request asks Postgres. A key that is revoked is good for a second
/// more. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct KnownKeys(Arc<Mutex<Known>>);

/// Hash of a key: when it was looked up, and whose it is.
type Known = HashMap<Vec<u8>, (Instant, ApiKey)>;

/// A key is believed for so long.
const BELIEVED: Duration = Duration::from_secs(1);
/// And for so long while Postgres does not answer.
const BELIEVED_IN_NEED: Duration = Duration::from_secs(60);
/// So many are kept; then all are forgotten.
const MOST_KNOWN: usize = 10_000;

impl KnownKeys {
    /// The key's owner, unless it is unknown or revoked.
    pub async fn find(&self, db: &PgPool, key: &str) -> Result<Option<ApiKey>, sqlx::Error> {
        let hash = hash(key);
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, owner)) = lock().get(&hash)
            && at.elapsed() < BELIEVED
        {
            return Ok(Some(owner.clone()));
        }
        let found = match find(db, key).await {
            Ok(found) => found,
            // While Postgres is away nobody can be revoked either.
            Err(error) => {
                let known = lock().get(&hash).filter(|(at, _)| at.elapsed() < BELIEVED_IN_NEED).map(|(_, k)| k.clone());
                return known.map(Some).ok_or(error);
            }
        };
        let mut known = lock();
        match &found {
            Some(owner) => {
                if known.len() >= MOST_KNOWN {
                    known.clear();
                }
                known.insert(hash, (Instant::now(), owner.clone()));
            }
            None => {
                known.remove(&hash);
            }
        }
        Ok(found)
    }
}

/// Was there such a key to revoke?
pub async fn revoke(db: &PgPool, id: Uuid) -> Result<bool, sqlx::Error> {
    let revoked = sqlx::query(
        "-- revoke api key
         UPDATE api_keys SET revoked_at = dispatchq_now() WHERE id = $1 AND revoked_at IS NULL",
    )
    .bind(id)
    .execute(db)
    .await?;
    Ok(revoked.rows_affected() == 1)
}
