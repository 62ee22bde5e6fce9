//! Keys as operators handle them: made, replaced, listed, revoked. All in Postgres; a key is refused within a second.

use std::time::Duration;

use chrono::{DateTime, Utc};
use model::{ids::DriverId, plain_text};
use serde::Serialize;
use uuid::Uuid;

use super::api_keys::{AccountRole, ApiKey, generate_key, hash_key};
use crate::db::{Connection, Pool};

/// Longest name, in characters.
const MAX_NAME: usize = 64;
/// Keys of one statement.
const PAGE: i64 = 1000;

/// A key to be made.
#[derive(Debug, Clone, Copy)]
pub struct NewKey<'a> {
    pub name: &'a str,
    pub role: AccountRole,
    pub driver_id: Option<&'a DriverId>,
    pub expires_in: Option<Duration>,
}

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("a key named '{0}' exists; choose another name, or replace it: dispatchq apikey rotate --name '{0}'")]
    NameTaken(String),
    #[error("no live key is named '{0}'; see: dispatchq apikey list")]
    NoSuchName(String),
    #[error("a key's name {0}")]
    BadName(String),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// Writes a new key. Returns it with its text, which is stored nowhere.
pub(super) async fn issue_key(db: &mut Connection, new: &NewKey<'_>) -> Result<(ApiKey, String), KeyError> {
    if new.name.trim().is_empty() {
        return Err(KeyError::BadName("must not be empty".to_owned()));
    }
    if let Some(problem) = plain_text::find_problem(new.name, MAX_NAME) {
        return Err(KeyError::BadName(problem));
    }
    let key = generate_key();
    let row = sqlx::query_as(
        "-- create api key
         INSERT INTO api_keys (id, name, sha256, role, driver_id, expires_at)
         VALUES ($1, $2, $3, $4, $5, dispatchq_now() + $6 * interval '1 second')
         RETURNING id, name, role, driver_id, created_at, revoked_at",
    )
    .bind(Uuid::now_v7())
    .bind(new.name)
    .bind(hash_key(&key))
    .bind(new.role)
    .bind(new.driver_id)
    .bind(new.expires_in.map(|time| time.as_secs_f64()))
    .fetch_one(db)
    .await
    .map_err(|error| match error.as_database_error().and_then(|e| e.constraint()) {
        Some("api_keys_one_per_name") => KeyError::NameTaken(new.name.to_owned()),
        _ => error.into(),
    })?;
    Ok((row, key))
}

/// Makes a key, as [`NewKey`] says.
pub async fn create_key(db: &Pool, new: &NewKey<'_>) -> Result<(ApiKey, String), KeyError> {
    issue_key(&mut db.acquire().await?, new).await
}

/// Replaces the key of this name by a new one with the same rights. The old one works for `overlap` more, so that its
/// holder can change over. Orders keep their owner: it is the name.
pub async fn rotate_key(
    db: &Pool,
    name: &str,
    overlap: Duration,
    expires_in: Option<Duration>,
) -> Result<(ApiKey, String), KeyError> {
    let mut tx = db.begin().await?;
    let made = replace_key(&mut tx, name, overlap, expires_in).await?;
    tx.commit().await?;
    Ok(made)
}

/// As [`rotate_key`], in a transaction.
pub(super) async fn replace_key(
    tx: &mut Connection,
    name: &str,
    overlap: Duration,
    expires_in: Option<Duration>,
) -> Result<(ApiKey, String), KeyError> {
    let old: Option<(AccountRole, Option<DriverId>)> = sqlx::query_as(
        "-- supersede api key
         UPDATE api_keys SET superseded_at = dispatchq_now(),
                expires_at = least(expires_at, dispatchq_now() + $2 * interval '1 second')
         WHERE name = $1 AND revoked_at IS NULL AND superseded_at IS NULL
         RETURNING role, driver_id",
    )
    .bind(name)
    .bind(overlap.as_secs_f64())
    .fetch_optional(&mut *tx)
    .await?;
    let (role, driver_id) = old.ok_or_else(|| KeyError::NoSuchName(name.to_owned()))?;
    issue_key(tx, &NewKey { name, role, driver_id: driver_id.as_ref(), expires_in }).await
}

/// A key as it is listed.
#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
pub struct ListedKey {
    pub id: Uuid,
    pub name: String,
    pub role: AccountRole,
    pub driver_id: Option<DriverId>,
    pub created_at: DateTime<Utc>,
    /// To the minute.
    pub last_used_at: Option<DateTime<Utc>>,
    pub expires_at: Option<DateTime<Utc>>,
    /// When a new key of the same name replaced it.
    pub superseded_at: Option<DateTime<Utc>>,
    pub revoked_at: Option<DateTime<Utc>>,
    /// It opens the API now.
    pub valid: bool,
}

/// Which keys to list; oldest first.
#[derive(Debug, Clone, Default)]
pub struct KeyFilter {
    pub role: Option<AccountRole>,
    pub driver: Option<DriverId>,
    /// The name holds this text.
    pub name: Option<String>,
    /// Also those that open nothing any more.
    pub all: bool,
    /// Only keys not used for so long, or never.
    pub unused_for: Option<Duration>,
}

/// One page of keys behind this one; empty after the last.
pub async fn list_page(
    db: &Pool,
    filter: &KeyFilter,
    after: Option<Uuid>,
    limit: i64,
) -> Result<Vec<ListedKey>, sqlx::Error> {
    sqlx::query_as(
        "-- list api keys
         SELECT k.id, k.name, k.role, k.driver_id, k.created_at, k.last_used_at, k.expires_at, k.superseded_at, k.revoked_at,
                v.id IS NOT NULL AS valid
         FROM api_keys k
         -- Looked up for each key of the page: a join would read all keys.
         LEFT JOIN LATERAL (SELECT v.id FROM valid_api_keys v WHERE v.id = k.id OFFSET 0) v ON true
         WHERE ($1::text IS NULL OR k.role = $1) AND ($2::text IS NULL OR k.driver_id = $2)
           AND ($3::text IS NULL OR strpos(k.name, $3) > 0) AND ($4 OR v.id IS NOT NULL)
           AND ($5::float8 IS NULL OR coalesce(k.last_used_at, k.created_at) < dispatchq_now() - $5 * interval '1 second')
           AND ($6::uuid IS NULL OR k.id > $6)
         ORDER BY k.id LIMIT $7",
    )
    .bind(filter.role)
    .bind(&filter.driver)
    .bind(&filter.name)
    .bind(filter.all)
    .bind(filter.unused_for.map(|time| time.as_secs_f64()))
    .bind(after)
    .bind(limit)
    .fetch_all(db)
    .await
}

/// Returns all keys of the filter, however many.
pub async fn list_keys(db: &Pool, filter: &KeyFilter) -> Result<Vec<ListedKey>, sqlx::Error> {
    let mut keys = Vec::new();
    loop {
        let page = list_page(db, filter, keys.last().map(|key: &ListedKey| key.id), PAGE).await?;
        if page.is_empty() {
            return Ok(keys);
        }
        keys.extend(page);
    }
}

/// Which keys are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySelection {
    Id(Uuid),
    /// Every key of this driver.
    Driver(DriverId),
    /// Every key of this name, superseded ones too.
    Name(String),
}

impl KeySelection {
    fn as_columns(&self) -> (Option<Uuid>, Option<&DriverId>, Option<&str>) {
        match self {
            Self::Id(id) => (Some(*id), None, None),
            Self::Driver(driver) => (None, Some(driver), None),
            Self::Name(name) => (None, None, Some(name)),
        }
    }
}

/// Id and name of the keys that `revoke_keys` would revoke.
pub async fn list_revocable(db: &Pool, which: &KeySelection) -> Result<Vec<(Uuid, String)>, sqlx::Error> {
    let (id, driver, name) = which.as_columns();
    sqlx::query_as(
        "-- api keys to revoke
         SELECT id, name FROM api_keys
         WHERE (id = $1 OR driver_id = $2 OR name = $3) AND revoked_at IS NULL ORDER BY id",
    )
    .bind(id)
    .bind(driver)
    .bind(name)
    .fetch_all(db)
    .await
}

/// Makes keys useless. Returns id and name of those it did.
pub async fn revoke_keys(db: &mut Connection, which: &KeySelection) -> Result<Vec<(Uuid, String)>, sqlx::Error> {
    let (id, driver, name) = which.as_columns();
    sqlx::query_as(
        "-- revoke api keys
         UPDATE api_keys SET revoked_at = dispatchq_now()
         WHERE (id = $1 OR driver_id = $2 OR name = $3) AND revoked_at IS NULL RETURNING id, name",
    )
    .bind(id)
    .bind(driver)
    .bind(name)
    .fetch_all(db)
    .await
}
