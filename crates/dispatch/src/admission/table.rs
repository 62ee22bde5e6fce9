//! Areas, limits, overrides and the flag as rows. Each change is one transaction with its line in the audit: who changed what
//! from what to what, and why.

use chrono::{DateTime, Utc};
use model::actor::Actor;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::{PgExecutor, types::Json};

use super::limits::{AdmissionFlag, ForcedStatus, LoyaltyLevel};
use crate::{
    areas::import::ImportedArea,
    db::{Connection, Pool},
};

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    #[error("no area of this id; see: dispatchq area list")]
    NoSuchArea,
    #[error("it was changed meanwhile: it has version {0} now; look again, then decide")]
    Changed(i64),
    #[error("{0}")]
    Invalid(String),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// Who changes something, and why.
#[derive(Debug, Clone, Copy)]
pub struct ChangeAuthor<'a> {
    pub actor: &'a Actor,
    pub reason: Option<&'a str>,
}

/// A row of `area_limits`; what is `None` follows the installation. Source: the requirement on server busy, 3.3 and 4.5.2.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema, sqlx::FromRow)]
#[serde(default)]
#[schema(as = AreaLimits)]
pub struct LimitsRow {
    #[schema(required)]
    pub area_id: String,
    #[schema(required)]
    pub service_type: String,
    pub max_waiting_orders: Option<i64>,
    pub dispatch_timeout_sec: Option<i64>,
    pub order_lifetime_sec: Option<i64>,
    pub retry_interval_sec: Option<i64>,
    pub busy_retry_interval_sec: Option<i64>,
    pub cooldown_period_sec: Option<i64>,
    pub low_water_percentage: Option<i32>,
    pub bypass_enabled: Option<bool>,
    pub bypass_loyalty_levels: Option<Vec<String>>,
    pub max_bypass_percentage: Option<i32>,
    #[schema(required)]
    pub enabled: bool,
    #[schema(required)]
    pub priority: i32,
    #[schema(required)]
    pub version: i64,
}

/// What of an area's limits is to change; what is `None` stays.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsChange {
    #[schema(required)]
    pub service_type: String,
    #[schema(minimum = 0, maximum = 1000000)]
    pub max_waiting_orders: Option<i64>,
    /// The same as `order_lifetime_sec`: how long an order may wait.
    #[schema(minimum = 1, maximum = 604800)]
    pub waiting_timeout_sec: Option<i64>,
    #[schema(minimum = 1, maximum = 86400)]
    pub dispatch_timeout_sec: Option<i64>,
    #[schema(minimum = 1, maximum = 604800)]
    pub order_lifetime_sec: Option<i64>,
    #[schema(minimum = 1, maximum = 86400)]
    pub retry_interval_sec: Option<i64>,
    #[schema(minimum = 1, maximum = 86400)]
    pub busy_retry_interval_sec: Option<i64>,
    #[schema(minimum = 0, maximum = 86400)]
    pub cooldown_period_sec: Option<i64>,
    #[schema(minimum = 1, maximum = 100)]
    pub low_water_percentage: Option<i32>,
    pub bypass_enabled: Option<bool>,
    #[schema(value_type = Option<Vec<LoyaltyLevel>>)]
    pub bypass_loyalty_levels: Option<Vec<String>>,
    #[schema(minimum = 0, maximum = 1000)]
    pub max_bypass_percentage: Option<i32>,
    pub enabled: Option<bool>,
    #[schema(minimum = -2147483648, maximum = 2147483647)]
    pub priority: Option<i32>,
    /// Why; for the audit.
    #[schema(max_length = 500, pattern = "^[^\\u0000]*$")]
    pub reason: Option<String>,
}

impl LimitsChange {
    fn find_problem(&self) -> Option<String> {
        if self.waiting_timeout_sec.is_some() && self.order_lifetime_sec.is_some() {
            return Some("waiting_timeout_sec and order_lifetime_sec are the same thing; give one".to_owned());
        }
        for (name, value, range) in [
            ("max_waiting_orders", self.max_waiting_orders, 0..=1_000_000),
            ("waiting_timeout_sec", self.waiting_timeout_sec, 1..=604_800),
            ("order_lifetime_sec", self.order_lifetime_sec, 1..=604_800),
            ("dispatch_timeout_sec", self.dispatch_timeout_sec, 1..=86_400),
            ("retry_interval_sec", self.retry_interval_sec, 1..=86_400),
            ("busy_retry_interval_sec", self.busy_retry_interval_sec, 1..=86_400),
            ("cooldown_period_sec", self.cooldown_period_sec, 0..=86_400),
            ("low_water_percentage", self.low_water_percentage.map(i64::from), 1..=100),
            ("max_bypass_percentage", self.max_bypass_percentage.map(i64::from), 0..=1_000),
        ] {
            if value.is_some_and(|v| !range.contains(&v)) {
                return Some(format!("{name} must be {} to {}", range.start(), range.end()));
            }
        }
        let levels = self.bypass_loyalty_levels.iter().flatten();
        let unknown = levels.into_iter().find(|level| level.parse::<LoyaltyLevel>().is_err());
        unknown.map(|level| format!("bypass_loyalty_levels: '{level}' is none of EXPLORER, TRAVELER, VOYAGER, ELITE"))
    }

    fn apply_to(&self, row: &mut LimitsRow) {
        let set = |field: &mut Option<i64>, value: Option<i64>| {
            if value.is_some() {
                *field = value;
            }
        };
        set(&mut row.max_waiting_orders, self.max_waiting_orders);
        set(&mut row.dispatch_timeout_sec, self.dispatch_timeout_sec);
        set(&mut row.order_lifetime_sec, self.order_lifetime_sec.or(self.waiting_timeout_sec));
        set(&mut row.retry_interval_sec, self.retry_interval_sec);
        set(&mut row.busy_retry_interval_sec, self.busy_retry_interval_sec);
        set(&mut row.cooldown_period_sec, self.cooldown_period_sec);
        row.low_water_percentage = self.low_water_percentage.or(row.low_water_percentage);
        row.bypass_enabled = self.bypass_enabled.or(row.bypass_enabled);
        row.max_bypass_percentage = self.max_bypass_percentage.or(row.max_bypass_percentage);
        if let Some(levels) = &self.bypass_loyalty_levels {
            row.bypass_loyalty_levels = Some(levels.clone());
        }
        row.enabled = self.enabled.unwrap_or(row.enabled);
        row.priority = self.priority.unwrap_or(row.priority);
    }
}

/// An area without its geometry.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema, sqlx::FromRow)]
#[schema(as = Area)]
pub struct AreaRow {
    pub id: String,
    pub name: String,
    pub priority: i32,
    pub geohashes: Vec<String>,
    pub has_polygons: bool,
    pub version: i64,
    pub updated_at: DateTime<Utc>,
}

pub async fn list_areas(db: &Pool) -> Result<Vec<AreaRow>, sqlx::Error> {
    sqlx::query_as(
        "-- list areas
         SELECT id, name, priority, geohashes, geometry IS NOT NULL AS has_polygons, version, updated_at
         FROM areas ORDER BY id",
    )
    .fetch_all(db)
    .await
}

pub async fn list_limits(db: &Pool, area: Option<&str>) -> Result<Vec<LimitsRow>, sqlx::Error> {
    sqlx::query_as(
        "-- list limits
         SELECT * FROM area_limits WHERE $1::text IS NULL OR area_id = $1 ORDER BY area_id, service_type",
    )
    .bind(area)
    .fetch_all(db)
    .await
}

/// Returns the version of all areas together: it grows whenever one is added, changed or removed.
pub async fn areas_version(db: &Pool) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(
        "-- version of all areas
         SELECT areas FROM admission_revision",
    )
    .fetch_one(db)
    .await
}

/// Adds areas, or brings those that exist up to date; with `replace` others are removed. `expected`: the version of all
/// areas that the author has seen. Returns how many were written and removed.
pub async fn import_areas(
    db: &Pool,
    areas: &[ImportedArea],
    replace: bool,
    expected: Option<i64>,
    author: ChangeAuthor<'_>,
) -> Result<(u64, u64), TableError> {
    let mut tx = db.begin().await?;
    let version = lock_admission(&mut tx).await?;
    require_version(expected, version)?;
    for ImportedArea { area, geometry } in areas {
        let before: Option<Json<Value>> = sqlx::query_scalar(
            "-- area before
             SELECT to_jsonb(a) FROM areas a WHERE id = $1",
        )
        .bind(&area.id)
        .fetch_optional(&mut *tx)
        .await?;
        let after: Option<Json<Value>> = sqlx::query_scalar(
            "-- import area
             INSERT INTO areas AS a (id, name, priority, geometry, geohashes) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (id) DO UPDATE SET name = excluded.name, priority = excluded.priority,
                 geometry = excluded.geometry, geohashes = excluded.geohashes, version = a.version + 1,
                 updated_at = dispatchq_now()
             WHERE (a.name, a.priority, a.geometry, a.geohashes)
                   IS DISTINCT FROM (excluded.name, excluded.priority, excluded.geometry, excluded.geohashes)
             RETURNING to_jsonb(a)",
        )
        .bind(&area.id)
        .bind(&area.name)
        .bind(area.priority)
        .bind(geometry.as_ref().map(Json))
        .bind(&area.geohashes)
        .fetch_optional(&mut *tx)
        .await?;
        // One that is as it was leaves no line.
        if let Some(Json(after)) = after {
            let before = before.map(|Json(row)| row);
            record_change(&mut tx, author, "area imported", Some(&area.id), before, Some(after)).await?;
        }
    }
    let mut removed = 0;
    if replace {
        let ids: Vec<&str> = areas.iter().map(|a| a.area.id.as_str()).collect();
        let others: Vec<String> = sqlx::query_scalar(
            "-- other areas
             SELECT id FROM areas WHERE id <> ALL ($1) ORDER BY id",
        )
        .bind(&ids)
        .fetch_all(&mut *tx)
        .await?;
        for other in others {
            removed += u64::from(delete_area(&mut tx, &other, author).await?);
        }
    }
    tx.commit().await?;
    Ok((areas.len() as u64, removed))
}

/// Removes an area. `expected`: the area's version that the author has seen.
pub async fn remove_area(
    db: &Pool,
    area: &str,
    expected: Option<i64>,
    author: ChangeAuthor<'_>,
) -> Result<(), TableError> {
    let mut tx = db.begin().await?;
    lock_admission(&mut tx).await?;
    require_version(expected, lock_area(&mut tx, area).await?)?;
    if !delete_area(&mut tx, area, author).await? {
        return Err(TableError::NoSuchArea);
    }
    Ok(tx.commit().await?)
}

/// With its limits and its override, all of which the audit keeps. Was there such an area?
async fn delete_area(tx: &mut Connection, area: &str, author: ChangeAuthor<'_>) -> Result<bool, sqlx::Error> {
    let before: Option<Json<Value>> = sqlx::query_scalar(
        "-- area to remove
         SELECT to_jsonb(a) || jsonb_build_object(
                    'limits', (SELECT coalesce(jsonb_agg(l), '[]') FROM area_limits l WHERE l.area_id = a.id),
                    'override', (SELECT to_jsonb(o) FROM area_overrides o WHERE o.area_id = a.id))
         FROM areas a WHERE id = $1",
    )
    .bind(area)
    .fetch_optional(&mut *tx)
    .await?;
    let Some(Json(before)) = before else { return Ok(false) };
    sqlx::query(
        "-- remove area
         DELETE FROM areas WHERE id = $1",
    )
    .bind(area)
    .execute(&mut *tx)
    .await?;
    record_change(tx, author, "area removed", Some(area), Some(before), None).await?;
    Ok(true)
}

/// Changes the limits of an area for one service type. `expected`: the version the author has seen.
pub async fn set_limits(
    db: &Pool,
    area: &str,
    change: &LimitsChange,
    expected: Option<i64>,
    author: ChangeAuthor<'_>,
) -> Result<LimitsRow, TableError> {
    if let Some(problem) = change.find_problem() {
        return Err(TableError::Invalid(problem));
    }
    let mut tx = db.begin().await?;
    lock_admission(&mut tx).await?;
    lock_area(&mut tx, area).await?;
    let before: Option<LimitsRow> = sqlx::query_as(
        "-- limits before
         SELECT * FROM area_limits WHERE area_id = $1 AND service_type = $2 FOR UPDATE",
    )
    .bind(area)
    .bind(&change.service_type)
    .fetch_optional(&mut *tx)
    .await?;
    let version = before.as_ref().map_or(0, |row| row.version);
    require_version(expected, version)?;
    let mut row = before.clone().unwrap_or_else(|| LimitsRow {
        area_id: area.to_owned(),
        service_type: change.service_type.clone(),
        enabled: true,
        ..LimitsRow::default()
    });
    change.apply_to(&mut row);
    row.version = version + 1;
    sqlx::query(
        "-- set limits
         INSERT INTO area_limits (area_id, service_type, max_waiting_orders, dispatch_timeout_sec, order_lifetime_sec,
             retry_interval_sec, busy_retry_interval_sec, cooldown_period_sec, low_water_percentage, bypass_enabled,
             bypass_loyalty_levels, max_bypass_percentage, enabled, priority, version, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, dispatchq_now())
         ON CONFLICT (area_id, service_type) DO UPDATE SET max_waiting_orders = excluded.max_waiting_orders,
             dispatch_timeout_sec = excluded.dispatch_timeout_sec, order_lifetime_sec = excluded.order_lifetime_sec,
             retry_interval_sec = excluded.retry_interval_sec,
             busy_retry_interval_sec = excluded.busy_retry_interval_sec,
             cooldown_period_sec = excluded.cooldown_period_sec,
             low_water_percentage = excluded.low_water_percentage, bypass_enabled = excluded.bypass_enabled,
             bypass_loyalty_levels = excluded.bypass_loyalty_levels,
             max_bypass_percentage = excluded.max_bypass_percentage, enabled = excluded.enabled,
             priority = excluded.priority, version = excluded.version, updated_at = excluded.updated_at",
    )
    .bind(&row.area_id)
    .bind(&row.service_type)
    .bind(row.max_waiting_orders)
    .bind(row.dispatch_timeout_sec)
    .bind(row.order_lifetime_sec)
    .bind(row.retry_interval_sec)
    .bind(row.busy_retry_interval_sec)
    .bind(row.cooldown_period_sec)
    .bind(row.low_water_percentage)
    .bind(row.bypass_enabled)
    .bind(&row.bypass_loyalty_levels)
    .bind(row.max_bypass_percentage)
    .bind(row.enabled)
    .bind(row.priority)
    .bind(row.version)
    .execute(&mut *tx)
    .await?;
    record_change(&mut tx, author, "limits set", Some(area), before.map(|row| json!(row)), Some(json!(row))).await?;
    tx.commit().await?;
    Ok(row)
}

/// The version of an area's override: the number of its latest line in the audit; 0 before the first.
pub async fn override_version(db: impl PgExecutor<'_>, area: &str) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(
        "-- override version
         SELECT coalesce(max(id), 0) FROM admission_audit WHERE area_id = $1 AND what = 'override set'",
    )
    .bind(area)
    .fetch_one(db)
    .await
}

/// Decides for an area, until `expires_at`; `None` gives it back to its count. `expected`: the version of the override that
/// the author has seen. Returns the new one.
pub async fn set_override(
    db: &Pool,
    area: &str,
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
        let reason = reason.ok_or_else(|| TableError::Invalid("an override needs a reason".to_owned()))?;
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
    let after = forced.map(|(status, expires_at)| json!({ "status": status, "expires_at": expires_at }));
    let version =
        record_change(&mut tx, author, "override set", Some(area), before.map(|Json(row)| row), after).await?;
    tx.commit().await?;
    Ok(version)
}

/// Sets the flag as a whole. `expected`: the version the author has seen.
pub async fn set_flag(
    db: &Pool,
    flag: &AdmissionFlag,
    expected: Option<i64>,
    author: ChangeAuthor<'_>,
) -> Result<AdmissionFlag, TableError> {
    if !(0..=100).contains(&flag.percentage) {
        return Err(TableError::Invalid("percentage must be 0 to 100".to_owned()));
    }
    let fits = |name: &String| (1..=64).contains(&name.len()) && name.bytes().all(|b| (b' '..=b'~').contains(&b));
    if !flag.enabled_areas.iter().chain(&flag.enabled_channels).all(fits) {
        let text = "enabled_areas and enabled_channels must be names of 1 to 64 printable characters";
        return Err(TableError::Invalid(text.to_owned()));
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
        return Err(TableError::Invalid(format!("enabled_areas: no area '{unknown}'; see: dispatchq area list")));
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

/// One line of the audit.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema, sqlx::FromRow)]
#[schema(as = AreaChange)]
pub struct AuditEntry {
    pub id: i64,
    pub at: DateTime<Utc>,
    pub actor: String,
    pub what: String,
    pub area_id: Option<String>,
    pub before: Option<Value>,
    pub after: Option<Value>,
    pub reason: Option<String>,
}

/// A page of changes, newest first, from before the entry `before` on. Geometries may be large: in their place stands their
/// SHA-256 (`geometry_sha256`), which says whether two are the same.
pub async fn list_changes(
    db: &Pool,
    area: Option<&str>,
    before: Option<i64>,
    limit: u32,
) -> Result<Vec<AuditEntry>, sqlx::Error> {
    sqlx::query_as(
        "-- audit of areas
         SELECT id, at, actor, what, area_id, reason,
                CASE WHEN jsonb_typeof(before -> 'geometry') = 'object'
                     THEN before - 'geometry' || jsonb_build_object('geometry_sha256',
                              encode(sha256(convert_to(before ->> 'geometry', 'UTF8')), 'hex'))
                     ELSE before END AS before,
                CASE WHEN jsonb_typeof(after -> 'geometry') = 'object'
                     THEN after - 'geometry' || jsonb_build_object('geometry_sha256',
                              encode(sha256(convert_to(after ->> 'geometry', 'UTF8')), 'hex'))
                     ELSE after END AS after
         FROM admission_audit
         WHERE ($1::text IS NULL OR area_id = $1) AND ($2::bigint IS NULL OR id < $2) ORDER BY id DESC LIMIT $3",
    )
    .bind(area)
    .bind(before)
    .bind(i64::from(limit))
    .fetch_all(db)
    .await
}

/// Lets a change pass whose author has seen this version, or insists on none.
fn require_version(expected: Option<i64>, version: i64) -> Result<(), TableError> {
    match expected {
        Some(expected) if expected != version => Err(TableError::Changed(version)),
        _ => Ok(()),
    }
}

/// Changes come one after the other, and take this lock first: so no two wait for each other. Returns the version of all
/// areas.
async fn lock_admission(tx: &mut Connection) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(
        "-- lock admission
         SELECT areas FROM admission_revision FOR UPDATE",
    )
    .fetch_one(tx)
    .await
}

/// Returns the area's version.
async fn lock_area(tx: &mut Connection, area: &str) -> Result<i64, TableError> {
    let found: Option<i64> = sqlx::query_scalar(
        "-- lock area
         SELECT version FROM areas WHERE id = $1 FOR UPDATE",
    )
    .bind(area)
    .fetch_optional(tx)
    .await?;
    found.ok_or(TableError::NoSuchArea)
}

/// Writes a line of the audit, and returns its number.
async fn record_change(
    tx: &mut Connection,
    author: ChangeAuthor<'_>,
    what: &str,
    area: Option<&str>,
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
