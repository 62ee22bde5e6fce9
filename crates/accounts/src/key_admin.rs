//! Creation, rotation, listing and revocation of API keys. All changes are in Postgres; every process rejects a revoked
//! key within a second.

use std::time::Duration;

use chrono::{DateTime, Utc};
use model::{
    ids::DriverId,
    key_name::{self, KeyName},
    scope::Scope,
};
use serde::Serialize;
use sqlx::types::Json;
use uuid::Uuid;

use super::api_keys::{AccountRole, ApiKey, generate_key, hash_key};
use foundation::db::{Connection, Pool};

/// Rows of one page of [`list_keys`].
const PAGE: i64 = 1000;

/// Properties of a key to create.
#[derive(Debug, Clone, Copy)]
pub struct NewKey<'a> {
    pub name: &'a str,
    pub role: AccountRole,
    pub driver_id: Option<&'a DriverId>,
    pub expires_in: Option<Duration>,
    /// Whether the key may take over the orders of an earlier producer with this name.
    pub takes_over: bool,
    /// Orders that the holder may read; `None`: all.
    pub scope: Option<&'a Scope>,
}

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("a key named '{0}' exists; choose another name, or replace it: dispatchq apikey rotate --name '{0}'")]
    NameTaken(String),
    #[error(
        "orders belong to the name '{0}', and a new key of this name reads them; choose another name, or pass --take-over"
    )]
    OwnsOrders(String),
    #[error("no live key is named '{0}'; see: dispatchq apikey list")]
    NoSuchName(String),
    #[error("a key's name {0}")]
    BadName(String),
    #[error("no driver '{0}'; add it with: dispatchq driver import")]
    NoSuchDriver(DriverId),
    #[error("the database lacks the role dispatchq_scoped; run deploy/postgres/roles.sql")]
    NoScopes,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

#[derive(Debug)]
pub(super) struct IssuedKey {
    pub(super) row: ApiKey,
    /// Text of the key, which is not stored.
    pub(super) text: String,
    /// Whether the key took over the orders of an earlier producer with this name.
    pub(super) took_over: bool,
}

/// Name of a new key, in both stored forms.
struct KeyIdentity {
    name: String,
    name_key: String,
}

/// Creates a key, unless an unrevoked key has the same name.
pub(super) async fn issue_key(tx: &mut Connection, new: &NewKey<'_>) -> Result<IssuedKey, KeyError> {
    let name = KeyName::parse(new.name).map_err(KeyError::BadName)?;
    let mut identity = KeyIdentity { name: name.as_str().to_owned(), name_key: name.to_key() };
    let owner = match new.role {
        AccountRole::Producer => find_owner_name(tx, &identity).await?,
        _ => None,
    };
    if let Some(owner) = &owner {
        if !new.takes_over {
            return Err(KeyError::OwnsOrders(owner.clone()));
        }
        // Orders store the owner's name in its original spelling.
        identity.name.clone_from(owner);
    }
    let (row, text) = insert_key(tx, new, &identity).await?;
    Ok(IssuedKey { row, text, took_over: owner.is_some() })
}

/// Returns the name of an order owner that equals this name after folding. Every order has a creation event in the
/// feed, and the feed keeps it as long as the order.
async fn find_owner_name(tx: &mut Connection, identity: &KeyIdentity) -> Result<Option<String>, sqlx::Error> {
    sqlx::query_scalar(
        "-- owner of orders by name
         SELECT n.name FROM (
             SELECT $1 AS name, NULL::timestamptz AS revoked_at
             UNION ALL
             SELECT k.name, k.revoked_at FROM api_keys k WHERE k.name_key = $2 AND k.role = 'producer') n
         WHERE EXISTS (SELECT 1 FROM order_feed f WHERE f.owner = n.name)
         ORDER BY n.revoked_at DESC NULLS FIRST LIMIT 1",
    )
    .bind(&identity.name)
    .bind(&identity.name_key)
    .fetch_optional(tx)
    .await
}

async fn insert_key(
    tx: &mut Connection,
    new: &NewKey<'_>,
    identity: &KeyIdentity,
) -> Result<(ApiKey, String), KeyError> {
    let key = generate_key();
    let row = sqlx::query_as(
        "-- create api key
         INSERT INTO api_keys (id, name, name_key, sha256, role, driver_id, expires_at, scope)
         VALUES ($1, $2, $3, $4, $5, $6, dispatchq_now() + $7 * interval '1 second', $8)
         RETURNING id, name, role, driver_id, holder_id, created_at, revoked_at, scope",
    )
    .bind(Uuid::now_v7())
    .bind(&identity.name)
    .bind(&identity.name_key)
    .bind(hash_key(&key))
    .bind(new.role)
    .bind(new.driver_id)
    .bind(new.expires_in.map(|time| time.as_secs_f64()))
    .bind(new.scope.map(Json))
    .fetch_one(tx)
    .await
    .map_err(|error| match error.as_database_error().and_then(|e| e.constraint()) {
        Some("api_keys_one_per_name" | "api_keys_one_per_look") => KeyError::NameTaken(identity.name.clone()),
        _ => error.into(),
    })?;
    Ok((row, key))
}

/// Creates a key that does not expire, also for a name that owns orders. Returns the key's text, which is not stored.
pub async fn create_permanent_key(
    db: &Pool,
    name: &str,
    role: AccountRole,
    driver_id: Option<&DriverId>,
) -> Result<(ApiKey, String), KeyError> {
    create_key(db, &NewKey { name, role, driver_id, expires_in: None, takes_over: true, scope: None }).await
}

/// Checks that the driver of a new key exists and is not disabled. The lock keeps the driver's row until the
/// transaction ends.
pub(super) async fn check_driver(tx: &mut Connection, new: &NewKey<'_>) -> Result<(), KeyError> {
    let Some(driver) = new.driver_id else { return Ok(()) };
    let found: Option<i32> = sqlx::query_scalar(
        "-- driver of a new key
         SELECT 1 FROM drivers WHERE id = $1 AND disabled_at IS NULL FOR KEY SHARE",
    )
    .bind(driver)
    .fetch_optional(tx)
    .await?;
    found.map(drop).ok_or_else(|| KeyError::NoSuchDriver(driver.clone()))
}

/// Creates a key with the properties of [`NewKey`].
pub async fn create_key(db: &Pool, new: &NewKey<'_>) -> Result<(ApiKey, String), KeyError> {
    let made = issue_key(&mut db.acquire().await?, new).await?;
    Ok((made.row, made.text))
}

/// Replaces the key of this name with a new one that has the same rights. The old key stays valid for `overlap`, so
/// that its holder can switch. Orders keep their owner, because the owner is the name.
pub async fn rotate_key(
    db: &Pool,
    name: &str,
    overlap: Duration,
    expires_in: Option<Duration>,
) -> Result<(ApiKey, String), KeyError> {
    let mut tx = db.begin().await?;
    let (_, made) = replace_key(&mut tx, name, overlap, expires_in).await?;
    tx.commit().await?;
    Ok(made)
}

/// Same as [`rotate_key`], in the caller's transaction. Also returns the id of the old key.
pub(super) async fn replace_key(
    tx: &mut Connection,
    name: &str,
    overlap: Duration,
    expires_in: Option<Duration>,
) -> Result<(Uuid, (ApiKey, String)), KeyError> {
    let name_key = key_name::fold(name);
    let old: Option<ReplacedKey> = sqlx::query_as(
        "-- supersede api key
         UPDATE api_keys SET superseded_at = dispatchq_now(),
                expires_at = least(expires_at, dispatchq_now() + $2 * interval '1 second')
         WHERE name_key = $1 AND revoked_at IS NULL AND superseded_at IS NULL
         RETURNING id, name, role, driver_id, scope",
    )
    .bind(&name_key)
    .bind(overlap.as_secs_f64())
    .fetch_optional(&mut *tx)
    .await?;
    let old = old.ok_or_else(|| KeyError::NoSuchName(name.to_owned()))?;
    let ReplacedKey { id, name, role, driver_id, scope } = &old;
    let (driver_id, scope) = (driver_id.as_ref(), scope.as_ref());
    let new = NewKey { name, role: *role, driver_id, expires_in, takes_over: true, scope };
    Ok((*id, insert_key(tx, &new, &KeyIdentity { name: name.clone(), name_key }).await?))
}

/// A replaced key. The new key has the same rights.
#[derive(sqlx::FromRow)]
struct ReplacedKey {
    id: Uuid,
    name: String,
    role: AccountRole,
    driver_id: Option<DriverId>,
    #[sqlx(json(nullable))]
    scope: Option<Scope>,
}

/// Sets the scope of an unrevoked key of staff; `None` removes it. Returns the name and the earlier scope, or `None` if
/// there is no such key.
pub(super) async fn set_scope(
    tx: &mut Connection,
    id: Uuid,
    scope: Option<&Scope>,
) -> Result<Option<(String, Option<Json<Scope>>)>, sqlx::Error> {
    sqlx::query_as(
        "-- set scope of key
         WITH old AS (
             SELECT id, name, scope FROM api_keys
             WHERE id = $1 AND revoked_at IS NULL AND oidc_subject IS NULL AND role NOT IN ('producer', 'driver')
             FOR UPDATE)
         UPDATE api_keys k SET scope = $2 FROM old WHERE k.id = old.id RETURNING old.name, old.scope",
    )
    .bind(id)
    .bind(scope.map(Json))
    .fetch_optional(tx)
    .await
}

/// Returns one of the names that no key of a producer has, and for which no login creates orders in SQL.
pub async fn find_unknown_producer(db: &Pool, names: &[String]) -> Result<Option<String>, sqlx::Error> {
    if names.is_empty() {
        return Ok(None);
    }
    sqlx::query_scalar(
        "-- unknown producer
         SELECT name FROM unnest($1::text[]) AS n (name)
         WHERE NOT EXISTS (SELECT 1 FROM api_keys k
                           WHERE k.name_key = dispatchq_name_key(n.name) AND k.name = n.name AND k.role = 'producer')
           AND NOT EXISTS (SELECT 1 FROM sql_producers p WHERE p.owner = n.name) LIMIT 1",
    )
    .bind(names)
    .fetch_optional(db)
    .await
}

/// Returns whether Postgres can limit reads to a scope: the role of such reads exists, and this login may use it.
pub(super) async fn scopes_work(tx: &mut Connection) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(
        "-- whether scopes work
         SELECT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'dispatchq_scoped' AND pg_has_role(oid, 'MEMBER'))
            AND EXISTS (SELECT 1 FROM pg_policy WHERE polrelid = 'orders'::regclass AND polname = 'orders_in_scope')",
    )
    .fetch_one(tx)
    .await
}

#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
pub struct ListedKey {
    pub id: Uuid,
    pub name: String,
    pub role: AccountRole,
    pub driver_id: Option<DriverId>,
    pub created_at: DateTime<Utc>,
    /// Precise to the minute.
    pub last_used_at: Option<DateTime<Utc>>,
    pub expires_at: Option<DateTime<Utc>>,
    /// Time when a new key of the same name replaced this one.
    pub superseded_at: Option<DateTime<Utc>>,
    pub revoked_at: Option<DateTime<Utc>>,
    /// Orders that the holder may read; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[sqlx(json(nullable))]
    pub scope: Option<Scope>,
    /// Whether the key is valid now.
    pub valid: bool,
}

/// Filter for a list of keys, oldest first.
#[derive(Debug, Clone, Default)]
pub struct KeyFilter {
    pub role: Option<AccountRole>,
    pub driver: Option<DriverId>,
    /// Text that the name must contain.
    pub name: Option<String>,
    /// Whether to include keys that are no longer valid.
    pub all: bool,
    /// Only keys that were not used for this time, or never.
    pub unused_for: Option<Duration>,
}

/// Returns one page of keys after the key `after`. An empty page means the end.
pub async fn list_page(
    db: &Pool,
    filter: &KeyFilter,
    after: Option<Uuid>,
    limit: i64,
) -> Result<Vec<ListedKey>, sqlx::Error> {
    sqlx::query_as(
        "-- list api keys
         SELECT k.id, k.name, k.role, k.driver_id, k.created_at, k.last_used_at, k.expires_at, k.superseded_at, k.revoked_at, k.scope,
                v.id IS NOT NULL AS valid
         FROM api_keys k
         -- One lookup per key of the page: a join would read all keys.
         LEFT JOIN LATERAL (SELECT v.id FROM valid_api_keys v WHERE v.id = k.id OFFSET 0) v ON true
         WHERE ($1::text IS NULL OR k.role = $1) AND ($2::text IS NULL OR k.driver_id = $2)
           AND ($3::text IS NULL OR strpos(k.name_key, $3) > 0) AND ($4 OR v.id IS NOT NULL)
           AND ($5::float8 IS NULL OR coalesce(k.last_used_at, k.created_at) < dispatchq_now() - $5 * interval '1 second')
           AND ($6::uuid IS NULL OR k.id > $6)
         ORDER BY k.id LIMIT $7",
    )
    .bind(filter.role)
    .bind(&filter.driver)
    .bind(filter.name.as_deref().map(key_name::fold))
    .bind(filter.all)
    .bind(filter.unused_for.map(|time| time.as_secs_f64()))
    .bind(after)
    .bind(limit)
    .fetch_all(db)
    .await
}

/// Returns all keys that match the filter, with no limit on their number.
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

/// Selection of keys to revoke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySelection {
    Id(Uuid),
    /// Every key of this driver.
    Driver(DriverId),
    /// Every key of this name, including superseded ones.
    Name(String),
}

impl KeySelection {
    /// Returns the values for the columns id, driver and folded name; two of them are `None`.
    fn to_columns(&self) -> (Option<Uuid>, Option<&DriverId>, Option<String>) {
        match self {
            Self::Id(id) => (Some(*id), None, None),
            Self::Driver(driver) => (None, Some(driver), None),
            Self::Name(name) => (None, None, Some(key_name::fold(name))),
        }
    }
}

/// Returns id and name of the keys that `revoke_keys` would revoke.
pub async fn list_revocable(db: &Pool, which: &KeySelection) -> Result<Vec<(Uuid, String)>, sqlx::Error> {
    let (id, driver, name) = which.to_columns();
    sqlx::query_as(
        "-- api keys to revoke
         SELECT id, name FROM api_keys
         WHERE (id = $1 OR driver_id = $2 OR name_key = $3) AND revoked_at IS NULL ORDER BY id",
    )
    .bind(id)
    .bind(driver)
    .bind(name)
    .fetch_all(db)
    .await
}

/// Revokes keys. Returns id and name of the keys that it revoked.
pub async fn revoke_keys(db: &mut Connection, which: &KeySelection) -> Result<Vec<(Uuid, String)>, sqlx::Error> {
    let (id, driver, name) = which.to_columns();
    sqlx::query_as(
        "-- revoke api keys
         UPDATE api_keys SET revoked_at = dispatchq_now()
         WHERE (id = $1 OR driver_id = $2 OR name_key = $3) AND revoked_at IS NULL RETURNING id, name",
    )
    .bind(id)
    .bind(driver)
    .bind(name)
    .fetch_all(db)
    .await
}
