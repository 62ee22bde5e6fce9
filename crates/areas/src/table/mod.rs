//! Rows of areas, limits, overrides and the flag. Each change is one transaction with its audit entry: author, old
//! value, new value and reason.
//!
//! * [`geofences`]: areas. [`limits`]: limits of waiting orders per area. [`limit_field`]: fields of limits.
//!   [`overrides`]: forced states that a person set for an area. [`flag`]: areas and channels in which limits apply.

pub mod flag;
pub mod geofences;
pub mod limit_field;
pub mod limits;
pub mod overrides;

use chrono::{DateTime, Utc};
use model::{actor::Actor, field_error::FieldError, ids::AreaId};
use serde::Serialize;
use serde_json::Value;

use foundation::db::{Connection, Pool};

/// Reason that a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    #[error("no area with this id; see: dispatchq area list")]
    NoSuchArea,
    #[error("it was changed in the meantime and is now version {0}; read it again, then decide")]
    Changed(i64),
    #[error("{0}")]
    Invalid(String),
    #[error(transparent)]
    InvalidField(#[from] FieldError),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

#[derive(Debug, Clone, Copy)]
pub struct ChangeAuthor<'a> {
    pub actor: &'a Actor,
    pub reason: Option<&'a str>,
}

/// One audit entry.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema, sqlx::FromRow)]
#[schema(as = AreaChange)]
pub struct AuditEntry {
    pub id: i64,
    pub at: DateTime<Utc>,
    pub actor: String,
    pub what: String,
    #[schema(value_type = Option<String>)]
    pub area_id: Option<AreaId>,
    pub before: Option<Value>,
    pub after: Option<Value>,
    pub reason: Option<String>,
}

/// Returns one page of changes, newest first, that are older than the entry `before`. Geometries may be large, so each
/// is replaced by its SHA-256 (`geometry_sha256`), which shows whether two geometries are equal.
pub async fn list_changes(
    db: &Pool,
    area: Option<&AreaId>,
    before: Option<i64>,
    limit: u32,
) -> Result<Vec<AuditEntry>, sqlx::Error> {
    sqlx::query_as(include_str!("list_changes.sql")).bind(area).bind(before).bind(i64::from(limit)).fetch_all(db).await
}

/// Checks that the author has seen the current version. `None` skips the check.
fn require_version(expected: Option<i64>, version: i64) -> Result<(), TableError> {
    match expected {
        Some(expected) if expected != version => Err(TableError::Changed(version)),
        _ => Ok(()),
    }
}

/// Locks the row that every change locks first, so that changes run one at a time and cannot deadlock. Returns the
/// version that all areas share.
async fn lock_admission(tx: &mut Connection) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(
        "-- lock admission
         SELECT areas FROM admission_revision FOR UPDATE",
    )
    .fetch_one(tx)
    .await
}

/// Locks the area's row and returns its version.
async fn lock_area(tx: &mut Connection, area: &AreaId) -> Result<i64, TableError> {
    let found: Option<i64> = sqlx::query_scalar(
        "-- lock area
         SELECT version FROM areas WHERE id = $1 FOR UPDATE",
    )
    .bind(area)
    .fetch_optional(tx)
    .await?;
    found.ok_or(TableError::NoSuchArea)
}

/// Writes an audit entry and returns its number.
async fn record_change(
    tx: &mut Connection,
    author: ChangeAuthor<'_>,
    what: &str,
    area: Option<&AreaId>,
    before: Option<Value>,
    after: Option<Value>,
) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(
        "-- write audit
         INSERT INTO admission_audit (actor, what, area_id, before, after, reason, key_id)
         VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING id",
    )
    .bind(author.actor.to_string())
    .bind(what)
    .bind(area)
    .bind(before)
    .bind(after)
    .bind(author.reason)
    .bind(author.actor.key)
    .fetch_one(tx)
    .await
}
