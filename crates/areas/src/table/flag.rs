//! The admission flag: the areas, the channels and the share of requests to which limits apply.

use model::{admission::limits::AdmissionFlag, field_error::FieldError, input};
use serde_json::json;

use super::{ChangeAuthor, TableError, lock_admission, record_change, require_version};
use foundation::db::{Connection, Pool};

/// Replaces the whole flag. `expected` is the version that the author has seen.
pub async fn set_flag(
    db: &Pool,
    flag: &AdmissionFlag,
    expected: Option<i64>,
    author: ChangeAuthor<'_>,
) -> Result<AdmissionFlag, TableError> {
    if !(0..=100).contains(&flag.percentage) {
        return Err(FieldError::new("percentage", "percentage must be 0 to 100").into());
    }
    if let Some(problem) = flag.enabled_areas.iter().find_map(|area| input::ID.find_problem(area)) {
        return Err(FieldError::new("enabled_areas", format!("enabled_areas: each {problem}")).into());
    }
    if let Some(problem) = flag.enabled_channels.iter().find_map(|name| input::CHANNEL.find_problem(name)) {
        return Err(FieldError::new("enabled_channels", format!("enabled_channels: each {problem}")).into());
    }
    let mut tx = db.begin().await?;
    lock_admission(&mut tx).await?;
    let before = read_flag(&mut tx).await?;
    require_version(expected, before.version)?;
    let unknown: Option<String> = sqlx::query_scalar(
        "-- unknown area
         SELECT name FROM unnest($1::text[]) AS name WHERE name NOT IN (SELECT id FROM areas) LIMIT 1",
    )
    .bind(&flag.enabled_areas)
    .fetch_optional(&mut *tx)
    .await?;
    if let Some(unknown) = unknown {
        let text = format!("enabled_areas: no area '{unknown}'; see: dispatchq area list");
        return Err(FieldError::new("enabled_areas", text).into());
    }
    let after = AdmissionFlag { version: before.version + 1, ..flag.clone() };
    sqlx::query(
        "-- set admission flag
         UPDATE admission_flag SET enabled = $1, enabled_areas = $2, enabled_channels = $3, percentage = $4,
                shadow_mode = $5, version = $6, updated_at = dispatchq_now()",
    )
    .bind(after.enabled)
    .bind(&after.enabled_areas)
    .bind(&after.enabled_channels)
    .bind(after.percentage)
    .bind(after.shadow_mode)
    .bind(after.version)
    .execute(&mut *tx)
    .await?;
    record_change(&mut tx, author, "flag set", None, Some(json!(before)), Some(json!(after))).await?;
    tx.commit().await?;
    Ok(after)
}

pub async fn load_flag(db: &Pool) -> Result<AdmissionFlag, sqlx::Error> {
    read_flag(&mut db.acquire().await?).await
}

async fn read_flag(db: &mut Connection) -> Result<AdmissionFlag, sqlx::Error> {
    sqlx::query_as(
        "-- read admission flag
         SELECT enabled, enabled_areas, enabled_channels, percentage, shadow_mode, version FROM admission_flag",
    )
    .fetch_one(db)
    .await
}
