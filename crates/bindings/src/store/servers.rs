//! Rows of providers' servers (settings and breaker state), and the limits on open calls.

use chrono::{DateTime, TimeDelta, Utc};
use model::{actor::Actor, binding::ServerId, ids::ProviderName};
use serde::Serialize;
use serde_json::{Value, json};
use sqlx::{FromRow, PgExecutor};

use foundation::db::{Connection, Pool};
use settings::ServerBreakerConfig;

/// Properties of a server that are needed to call it.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct ServerStanding {
    #[sqlx(rename = "standing_id")]
    pub id: ServerId,
    pub provider: ProviderName,
    pub base_url: String,
    pub enabled: bool,
    pub repeats_are_safe: bool,
    /// Number of consecutive failed calls that were the server's fault.
    #[sqlx(rename = "server_failures")]
    pub failures: i32,
    /// End of a pause during which the server is not called.
    pub paused_until: Option<DateTime<Utc>>,
}

impl ServerStanding {
    /// Returns the end of the server's pause, if it is paused now.
    pub fn pause_end(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.paused_until.filter(|until| *until > now)
    }
}

/// A row of `provider_servers`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, FromRow)]
pub struct ProviderServer {
    pub id: ServerId,
    pub provider: ProviderName,
    pub base_url: String,
    /// Maximum number of calls that may be open at the same time.
    pub max_concurrent: i32,
    pub enabled: bool,
    pub repeats_are_safe: bool,
    pub failures: i32,
    pub paused_until: Option<DateTime<Utc>>,
    pub changed_by: String,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

impl ProviderServer {
    /// Returns the settings that an audit record stores.
    pub fn recorded_settings(&self) -> Value {
        json!({
            "provider": self.provider, "base_url": self.base_url, "max_concurrent": self.max_concurrent,
            "enabled": self.enabled, "repeats_are_safe": self.repeats_are_safe,
        })
    }
}

/// Settings of a server that are to be written. `None` keeps the current value, or uses the default for a new server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerSettings {
    pub provider: Option<ProviderName>,
    pub base_url: Option<String>,
    pub max_concurrent: Option<i32>,
    pub enabled: Option<bool>,
    pub repeats_are_safe: Option<bool>,
}

/// Inserts a server. Returns `None` if the id exists.
pub async fn insert_server(
    db: &mut Connection,
    id: &ServerId,
    settings: &ServerSettings,
    by: &Actor,
) -> Result<Option<ProviderServer>, sqlx::Error> {
    sqlx::query_as(
        "-- insert provider server
         INSERT INTO provider_servers (id, provider, base_url, max_concurrent, enabled, repeats_are_safe, changed_by)
         VALUES ($1, $2, $3, coalesce($4, 2), coalesce($5, true), coalesce($6, true), $7)
         ON CONFLICT (id) DO NOTHING
         RETURNING id, provider, base_url, max_concurrent, enabled, repeats_are_safe, failures, paused_until,
                   changed_by, created_at, updated_at",
    )
    .bind(id)
    .bind(&settings.provider)
    .bind(&settings.base_url)
    .bind(settings.max_concurrent)
    .bind(settings.enabled)
    .bind(settings.repeats_are_safe)
    .bind(by.to_string())
    .fetch_optional(db)
    .await
}

/// Reads a server and locks its row, so that the transaction can change it.
pub async fn lock_server(db: &mut Connection, id: &ServerId) -> Result<Option<ProviderServer>, sqlx::Error> {
    sqlx::query_as(
        "-- lock provider server
         SELECT id, provider, base_url, max_concurrent, enabled, repeats_are_safe, failures, paused_until, changed_by,
                created_at, updated_at
         FROM provider_servers WHERE id = $1 FOR NO KEY UPDATE",
    )
    .bind(id)
    .fetch_optional(db)
    .await
}

/// Changes a server. Returns `None` if it does not exist.
pub async fn update_server(
    db: &mut Connection,
    id: &ServerId,
    settings: &ServerSettings,
    by: &Actor,
) -> Result<Option<ProviderServer>, sqlx::Error> {
    sqlx::query_as(
        "-- update provider server
         UPDATE provider_servers
         SET provider = coalesce($2, provider), base_url = coalesce($3, base_url),
             max_concurrent = coalesce($4, max_concurrent), enabled = coalesce($5, enabled),
             repeats_are_safe = coalesce($6, repeats_are_safe), changed_by = $7, version = version + 1,
             updated_at = dispatchq_now()
         WHERE id = $1
         RETURNING id, provider, base_url, max_concurrent, enabled, repeats_are_safe, failures, paused_until,
                   changed_by, created_at, updated_at",
    )
    .bind(id)
    .bind(&settings.provider)
    .bind(&settings.base_url)
    .bind(settings.max_concurrent)
    .bind(settings.enabled)
    .bind(settings.repeats_are_safe)
    .bind(by.to_string())
    .fetch_optional(db)
    .await
}

pub async fn find_server(db: &Pool, id: &ServerId) -> Result<Option<ProviderServer>, sqlx::Error> {
    sqlx::query_as(
        "-- find provider server
         SELECT id, provider, base_url, max_concurrent, enabled, repeats_are_safe, failures, paused_until, changed_by,
                created_at, updated_at
         FROM provider_servers WHERE id = $1",
    )
    .bind(id)
    .fetch_optional(db)
    .await
}

/// Returns one page of servers, ordered by id.
pub async fn list_servers(db: &Pool, after: Option<&ServerId>, limit: i64) -> Result<Vec<ProviderServer>, sqlx::Error> {
    sqlx::query_as(
        "-- list provider servers
         SELECT id, provider, base_url, max_concurrent, enabled, repeats_are_safe, failures, paused_until, changed_by,
                created_at, updated_at
         FROM provider_servers WHERE $1::text IS NULL OR id > $1 ORDER BY id LIMIT $2",
    )
    .bind(after)
    .bind(limit)
    .fetch_all(db)
    .await
}

pub async fn list_disabled(db: &Pool) -> Result<Vec<ServerId>, sqlx::Error> {
    sqlx::query_scalar(
        "-- disabled provider servers
         SELECT id FROM provider_servers WHERE NOT enabled",
    )
    .fetch_all(db)
    .await
}

/// Counts a failed call that was the server's fault. Once the count reaches the breaker's threshold, the server is
/// paused, and each further failure makes the pause longer. Returns the end of the pause.
pub async fn count_failure(
    db: &Pool,
    id: &ServerId,
    breaker: &ServerBreakerConfig,
    asked_pause: Option<TimeDelta>,
) -> Result<Option<DateTime<Utc>>, sqlx::Error> {
    sqlx::query_scalar(
        "-- count server failure
         UPDATE provider_servers
         SET failures = least(failures, 1000000) + 1,
             paused_until = greatest(paused_until,
                 CASE WHEN failures + 1 >= $2 THEN dispatchq_now() + interval '1 second'
                     * least($4, $3 * power(2, least(failures + 1 - $2, 20))) END,
                 dispatchq_now() + interval '1 second' * $5)
         WHERE id = $1 RETURNING paused_until",
    )
    .bind(id)
    .bind(i64::from(breaker.failures))
    .bind(breaker.open.as_secs_f64())
    .bind(breaker.max_open.as_secs_f64())
    .bind(asked_pause.map(TimeDelta::as_seconds_f64))
    .fetch_optional(db)
    .await
    .map(Option::flatten)
}

/// Resets the failure count and the pause after a successful call.
pub async fn forget_failures(db: &Pool, id: &ServerId) -> Result<(), sqlx::Error> {
    sqlx::query(
        "-- forget server failures
         UPDATE provider_servers SET failures = 0, paused_until = NULL
         WHERE id = $1 AND (failures > 0 OR paused_until IS NOT NULL)",
    )
    .bind(id)
    .execute(db)
    .await
    .map(drop)
}

/// Returns the limit on open calls to all servers together, if an operator has set one.
pub async fn find_total_limit(db: impl PgExecutor<'_>) -> Result<Option<i32>, sqlx::Error> {
    sqlx::query_scalar(
        "-- find call limit
         SELECT max_concurrent_calls FROM binding_limits",
    )
    .fetch_optional(db)
    .await
}

/// Sets the limit on open calls to all servers together. `None` restores the configured limit.
pub async fn set_total_limit(db: &mut Connection, limit: Option<i32>, by: &Actor) -> Result<(), sqlx::Error> {
    sqlx::query(
        "-- set call limit
         WITH gone AS (DELETE FROM binding_limits WHERE $1::integer IS NULL)
         INSERT INTO binding_limits (max_concurrent_calls, changed_by)
         SELECT $1, $2 WHERE $1::integer IS NOT NULL
         ON CONFLICT (only_one) DO UPDATE
             SET max_concurrent_calls = excluded.max_concurrent_calls, changed_by = excluded.changed_by,
                 updated_at = dispatchq_now()",
    )
    .bind(limit)
    .bind(by.to_string())
    .execute(db)
    .await
    .map(drop)
}
