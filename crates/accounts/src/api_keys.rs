//! API keys: random bearer tokens, shown once, stored as SHA-256.

use chrono::{DateTime, Utc};
use model::{
    actor::{Actor, ActorRole},
    ids::DriverId,
    scope::Scope,
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
    /// Reads everything that staff can read; changes nothing.
    Viewer,
    /// Decides on orders that wait for a person.
    Dispatcher,
    /// Reads everything about orders.
    Support,
    /// Reads everything and operates the system.
    Operator,
    /// Has the rights of all staff roles.
    Admin,
}

impl AccountRole {
    /// Returns whether staff use this role.
    pub fn is_staff(self) -> bool {
        !matches!(self, Self::Producer | Self::Driver)
    }
}

/// A key as listed, without its text.
#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
pub struct ApiKey {
    pub id: Uuid,
    pub name: String,
    pub role: AccountRole,
    pub driver_id: Option<DriverId>,
    /// Id that all keys of a name and role, or of a driver, share. Idempotency-Keys belong to it.
    #[serde(skip)]
    pub holder_id: Uuid,
    pub created_at: DateTime<Utc>,
    pub revoked_at: Option<DateTime<Utc>>,
    /// Orders that the holder may read; `None`: all. Only keys of staff have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[sqlx(json(nullable))]
    pub scope: Option<Scope>,
}

impl ApiKey {
    /// Returns the key's holder as the history stores it.
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

/// Returns a new key: 256 random bits with a prefix that secret scanners can recognize.
pub fn generate_key() -> String {
    // Keys are secrets: they always come from the system's generator, never from a seeded one.
    let random: [u8; 32] = rand::random();
    format!("dq_{}", hex::encode(random))
}

/// Returns whether `generate_key` can have produced the text. Other texts are rejected without a lookup.
pub fn is_well_formed(key: &str) -> bool {
    key.strip_prefix("dq_")
        .is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)))
}

/// Returns the hash that is stored for a key. A plain hash suffices because a key is random, unlike a password. A
/// lookup by hash leaks nothing about the key through timing.
pub fn hash_key(key: &str) -> Vec<u8> {
    Sha256::digest(key.as_bytes()).to_vec()
}

/// Returns the key's owner, or `None` if the key is unknown or revoked.
pub async fn find_key(db: &Pool, key: &str) -> Result<Option<ApiKey>, sqlx::Error> {
    sqlx::query_as(
        "-- find api key
         SELECT id, name, role, driver_id, holder_id, created_at, revoked_at, scope FROM valid_api_keys WHERE sha256 = $1",
    )
    .bind(hash_key(key))
    .fetch_optional(db)
    .await
}

/// A valid key and its expiry.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct FoundKey {
    pub sha256: Vec<u8>,
    #[sqlx(flatten)]
    pub key: ApiKey,
    pub expires_at: Option<DateTime<Utc>>,
}

/// Returns the valid keys with these hashes, in one statement. Unknown, expired and revoked keys are left out.
pub async fn find_all(db: &Pool, hashes: &[Vec<u8>]) -> Result<Vec<FoundKey>, sqlx::Error> {
    sqlx::query_as(
        "-- find api keys
         SELECT sha256, id, name, role, driver_id, holder_id, created_at, revoked_at, scope, expires_at FROM valid_api_keys
         WHERE sha256 = ANY ($1)",
    )
    .bind(hashes)
    .fetch_all(db)
    .await
}

/// Revokes a key. Returns whether an unrevoked key with this id existed.
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
