//! Bearer keys: random, shown once, stored as SHA-256.

use chrono::{DateTime, Utc};
use model::{
    actor::{Actor, ActorRole},
    ids::DriverId,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use foundation::db::Pool;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum AccountRole {
    /// Creates and cancels orders.
    Producer,
    /// Answers offers and carries out orders, for one driver.
    Driver,
    /// Reads what staff read, and changes nothing.
    Viewer,
    /// Decides on orders that wait for a person.
    Dispatcher,
    /// Reads everything about orders.
    Support,
    /// Reads everything, runs the system.
    Operator,
    /// May do all of it.
    Admin,
}

impl AccountRole {
    /// Returns whether people of the company have keys of this role.
    pub fn is_staff(self) -> bool {
        !matches!(self, Self::Producer | Self::Driver)
    }
}

/// A key as it is listed: everything but the key.
#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
pub struct ApiKey {
    pub id: Uuid,
    pub name: String,
    pub role: AccountRole,
    pub driver_id: Option<DriverId>,
    /// The same for all keys of a name and role, or of a driver. Idempotency-Keys belong to it.
    #[serde(skip)]
    pub holder_id: Uuid,
    pub created_at: DateTime<Utc>,
    pub revoked_at: Option<DateTime<Utc>>,
}

impl ApiKey {
    /// How the history names the holder.
    pub fn actor(&self) -> Actor {
        let role = match self.role {
            AccountRole::Producer => ActorRole::Producer,
            AccountRole::Driver => ActorRole::Driver,
            AccountRole::Viewer => ActorRole::Viewer,
            AccountRole::Dispatcher => ActorRole::Dispatcher,
            AccountRole::Support => ActorRole::Support,
            AccountRole::Operator => ActorRole::Operator,
            AccountRole::Admin => ActorRole::Admin,
        };
        Actor::new(role, self.driver_id.as_deref().unwrap_or(&self.name), Some(self.id))
    }
}

/// A new key: 256 random bits, with a prefix that secret scanners can look for.
pub fn generate_key() -> String {
    // A secret: always of the system's generator, and never of one that can be repeated.
    let random: [u8; 32] = rand::random();
    format!("dq_{}", hex::encode(random))
}

/// Could `generate_key` have made it? What could not is refused without a look-up.
pub fn is_well_formed(key: &str) -> bool {
    key.strip_prefix("dq_")
        .is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)))
}

/// What is stored of a key. A plain hash suffices, for a key is random and not a password; and looking the hash up
/// leaks nothing about the key by timing.
pub fn hash_key(key: &str) -> Vec<u8> {
    Sha256::digest(key.as_bytes()).to_vec()
}

/// The key's owner, unless it is unknown or revoked.
pub async fn find_key(db: &Pool, key: &str) -> Result<Option<ApiKey>, sqlx::Error> {
    sqlx::query_as(
        "-- find api key
         SELECT id, name, role, driver_id, holder_id, created_at, revoked_at FROM valid_api_keys WHERE sha256 = $1",
    )
    .bind(hash_key(key))
    .fetch_optional(db)
    .await
}

/// A key that opens the API, and until when.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct FoundKey {
    pub sha256: Vec<u8>,
    #[sqlx(flatten)]
    pub key: ApiKey,
    pub expires_at: Option<DateTime<Utc>>,
}

/// Whose these keys are, by their hashes; those that are unknown, expired or revoked are left out. One statement, however many.
pub async fn find_all(db: &Pool, hashes: &[Vec<u8>]) -> Result<Vec<FoundKey>, sqlx::Error> {
    sqlx::query_as(
        "-- find api keys
         SELECT sha256, id, name, role, driver_id, holder_id, created_at, revoked_at, expires_at FROM valid_api_keys
         WHERE sha256 = ANY ($1)",
    )
    .bind(hashes)
    .fetch_all(db)
    .await
}

/// Was there such a key to revoke?
pub async fn revoke_key(db: &Pool, id: Uuid) -> Result<bool, sqlx::Error> {
    let revoked = sqlx::query(
        "-- revoke api key
         UPDATE api_keys SET revoked_at = dispatchq_now() WHERE id = $1 AND revoked_at IS NULL",
    )
    .bind(id)
    .execute(db)
    .await?;
    Ok(revoked.rows_affected() == 1)
}
