//! Forced states that a person sets for an area.

use chrono::{DateTime, Utc};
use model::{admission::limits::ForcedStatus, field_error::FieldError, ids::AreaId};
use serde_json::{Value, json};
use sqlx::{PgExecutor, types::Json};

use super::{ChangeAuthor, TableError, lock_admission, lock_area, record_change, require_version};
use foundation::db::Pool;

/// Returns the version of an area's override: the number of its latest audit entry, or 0 if there is none.
pub async fn override_version(db: impl PgExecutor<'_>, area: &AreaId) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(
        "-- override version
         SELECT coalesce(max(id), 0) FROM admission_audit WHERE area_id = $1 AND what = 'override set'",
    )
    .bind(area)
    .fetch_one(db)
    .await
}

/// Forces a state of an area until `expires_at`. If `forced` is `None`, removes the forced state. `expected` is the
/// override's version that the author has seen. Returns the new version.
pub async fn set_override(
    db: &Pool,
    area: &AreaId,
    forced: Option<(ForcedStatus, Option<DateTime<Utc>>)>,
    expected: Option<i64>,
    author: ChangeAuthor<'_>,
) -> Result<i64, TableError> {
    let mut tx = db.begin().await?;
    lock_admission(&mut tx).await?;
    lock_area(&mut tx, area).await?;
    require_version(expected, override_version(&mut *tx, area).await?)?;
    let before: Option<Json<Value>> = sqlx::query_scalar(
        "-- end override
         DELETE FROM area_overrides o WHERE area_id = $1 RETURNING to_jsonb(o)",
    )
    .bind(area)
    .fetch_optional(&mut *tx)
    .await?;
    if let Some((status, expires_at)) = forced {
        let reason = author.reason.filter(|reason| !reason.trim().is_empty());
        let reason = reason.ok_or_else(|| FieldError::new("reason", "an override needs a reason"))?;
        sqlx::query(
            "-- set override
             INSERT INTO area_overrides (area_id, status, reason, expires_at, actor) VALUES ($1, $2, $3, $4, $5)",
        )
        .bind(area)
        .bind(status)
        .bind(reason)
        .bind(expires_at)
        .bind(author.actor.to_string())
        .execute(&mut *tx)
        .await?;
    }
    if forced.is_none() && before.is_none() {
        // There was no override to remove.
        return Ok(override_version(&mut *tx, area).await?);
    }
    let after = forced.map(|(status, expires_at)| json!({ "status": status, "expires_at": expires_at }));
    let version =
        record_change(&mut tx, author, "override set", Some(area), before.map(|Json(row)| row), after).await?;
    tx.commit().await?;
    Ok(version)
}
