//! Drivers: their positions, service types and availability.

use std::time::Duration;

use chrono::{DateTime, Utc};
use model::{
    field_error::FieldError,
    ids::{DriverId, LatLng, ServiceType, is_phone},
    input, plain_text,
    skills::{SkillSchema, SkillSet, find_skills_problem},
};
use serde::{Deserialize, Deserializer, Serialize};
use sqlx::{FromRow, PgExecutor, Row, postgres::PgRow};

use crate::fleet::driver_index::DriverPlace;
use foundation::db::Pool;
use settings::Config;

const MOST_SERVICE_TYPES: usize = 64;

/// A driver as imported, one JSON object per line.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NewDriver {
    pub id: DriverId,
    pub service_types: Vec<ServiceType>,
    pub latitude: f64,
    pub longitude: f64,
    #[serde(default = "default_available")]
    pub available: bool,
    /// E.164, such as +628123456789: for offers by voice call. If omitted, the stored number is kept; null removes it.
    #[serde(default, deserialize_with = "present_or_null", skip_serializing_if = "Option::is_none")]
    pub phone: Option<Option<String>>,
    /// If omitted, the stored name is kept; null removes it.
    #[serde(default, deserialize_with = "present_or_null", skip_serializing_if = "Option::is_none")]
    pub name: Option<Option<String>>,
    /// If omitted, the stored labels are kept; null or an empty list removes them.
    #[serde(default, deserialize_with = "null_as_empty", skip_serializing_if = "Option::is_none")]
    pub skills: Option<SkillSet>,
}

/// Distinguishes null from an omitted field.
pub(super) fn present_or_null<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(value).map(Some)
}

/// Reads null as an empty set.
pub(super) fn null_as_empty<'de, D: Deserializer<'de>>(value: D) -> Result<Option<SkillSet>, D::Error> {
    Option::<SkillSet>::deserialize(value).map(|skills| Some(skills.unwrap_or_default()))
}

fn default_available() -> bool {
    true
}

impl NewDriver {
    /// Returns the first invalid field, if any.
    pub fn find_problem(&self, config: &Config) -> Option<FieldError> {
        if let Some(problem) = input::ID.find_problem(&self.id) {
            return Some(FieldError::new("id", format!("id '{}' {problem}", plain_text::excerpt(&self.id))));
        }
        let place = LatLng::new(self.latitude, self.longitude);
        find_type_problem(config, &self.service_types)
            .or_else(|| find_place_problem(place))
            .or_else(|| find_phone_problem(self.phone.as_ref()))
            .or_else(|| find_name_problem(self.name.as_ref()))
            .or_else(|| find_skill_problem(self.skills.as_ref()))
    }
}

/// Returns the problem with a driver's service types, if any.
pub(super) fn find_type_problem(config: &Config, service_types: &[ServiceType]) -> Option<FieldError> {
    let count = service_types.len();
    let problem = if count == 0 {
        Some("service_types must name at least one".to_owned())
    } else if count > MOST_SERVICE_TYPES {
        Some(format!("service_types has {count} entries; {MOST_SERVICE_TYPES} is the most"))
    } else {
        service_types.iter().find_map(|service_type| config.find_unknown_type(service_type))
    };
    problem.map(|problem| FieldError::new("service_types", problem))
}

fn find_place_problem(place: LatLng) -> Option<FieldError> {
    if place.is_on_earth() {
        return None;
    }
    let field = if (-90.0..=90.0).contains(&place.lat) { "longitude" } else { "latitude" };
    Some(FieldError::new(field, format!("{}, {} is no place on earth", place.lat, place.lng)))
}

/// Returns the problem with a new phone number, if any.
pub(super) fn find_phone_problem(phone: Option<&Option<String>>) -> Option<FieldError> {
    let wrong = phone?.as_deref().filter(|phone| !is_phone(phone));
    wrong.map(|_| FieldError::new("phone", format!("phone {}", input::PHONE_RULE)))
}

/// Returns the problem with a new name, if any.
pub(super) fn find_name_problem(name: Option<&Option<String>>) -> Option<FieldError> {
    let problem = input::DRIVER_NAME.find_problem(name?.as_deref()?)?;
    Some(FieldError::new("name", format!("name {problem}")))
}

/// Returns the problem with new labels, if any.
pub(super) fn find_skill_problem(skills: Option<&SkillSet>) -> Option<FieldError> {
    let problem = find_skills_problem(skills?)?;
    Some(FieldError::new("skills", format!("skills {problem}")))
}

pub(super) fn distinct_types(service_types: &[ServiceType]) -> Vec<&ServiceType> {
    let mut distinct: Vec<&ServiceType> = Vec::new();
    for service_type in service_types {
        if !distinct.contains(&service_type) {
            distinct.push(service_type);
        }
    }
    distinct
}

/// Returns the labels as Postgres stores them.
pub(super) fn skill_texts(skills: &SkillSet) -> Vec<&str> {
    skills.iter().map(String::as_str).collect()
}

/// A driver as shown to staff and to the driver.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema, sqlx::FromRow)]
#[schema(as = Driver)]
pub struct DriverRecord {
    #[schema(value_type = String)]
    pub id: DriverId,
    /// Name for people; absent if none is stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub name: Option<String>,
    #[schema(value_type = Vec<String>)]
    pub service_types: Vec<ServiceType>,
    /// Labels of the driver. An order that requires other labels is not offered to the driver.
    #[schema(value_type = Vec<SkillSchema>)]
    pub skills: Vec<String>,
    #[sqlx(rename = "lat")]
    pub latitude: f64,
    #[sqlx(rename = "lng")]
    pub longitude: f64,
    /// Same as `latitude`; kept for older clients.
    #[schema(deprecated)]
    pub lat: f64,
    /// Same as `longitude`; kept for older clients.
    #[schema(deprecated)]
    pub lng: f64,
    pub available: bool,
    pub idle_since: DateTime<Utc>,
    /// The driver's active order.
    pub active_order: Option<String>,
    /// Time since which the driver is disabled: no offers, and the driver's keys are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub disabled_at: Option<DateTime<Utc>>,
}

/// Adds drivers or updates existing ones, without audit records, all or none.
pub async fn import_drivers(db: &Pool, drivers: &[NewDriver]) -> Result<u64, sqlx::Error> {
    let mut tx = db.begin().await?;
    for driver in drivers {
        save_driver(&mut *tx, driver).await?;
    }
    tx.commit().await?;
    Ok(drivers.len() as u64)
}

/// Adds a driver or updates an existing one.
pub(super) async fn save_driver(db: impl PgExecutor<'_>, driver: &NewDriver) -> Result<(), sqlx::Error> {
    sqlx::query(
        "-- import driver
         INSERT INTO drivers (id, service_types, lat, lng, available, phone, name, skills)
         VALUES ($1, $2, $3, $4, $5, $6, $8, coalesce($10::text[], '{}'))
         ON CONFLICT (id) DO UPDATE SET service_types = excluded.service_types, lat = excluded.lat, lng = excluded.lng,
             located_at = dispatchq_now(), updated_at = dispatchq_now(),
             available = excluded.available AND drivers.disabled_at IS NULL,
             phone = CASE WHEN $7 THEN excluded.phone ELSE drivers.phone END,
             name = CASE WHEN $9 THEN excluded.name ELSE drivers.name END, skills = coalesce($10, drivers.skills)",
    )
    .bind(&driver.id)
    .bind(distinct_types(&driver.service_types))
    .bind(driver.latitude)
    .bind(driver.longitude)
    .bind(driver.available)
    .bind(driver.phone.as_ref().and_then(Option::as_ref))
    .bind(driver.phone.is_some())
    .bind(driver.name.as_ref().and_then(Option::as_ref))
    .bind(driver.name.is_some())
    .bind(driver.skills.as_ref().map(skill_texts))
    .execute(db)
    .await
    .map(drop)
}

/// Returns a driver, or `None` if it does not exist.
pub async fn find_driver(db: &Pool, id: &DriverId) -> Result<Option<DriverRecord>, sqlx::Error> {
    sqlx::query_as(
        "-- find driver
         SELECT d.id, d.name, d.service_types, d.skills, d.lat, d.lng, d.available, d.idle_since, o.id AS active_order, d.disabled_at
         FROM drivers d
         LEFT JOIN orders o ON o.driver_id = d.id AND o.on_trip
              AND o.partner IS NULL
         WHERE d.id = $1",
    )
    .bind(id)
    .fetch_optional(db)
    .await
}

/// Returns the positions of these drivers. Unknown drivers are omitted.
pub async fn list_places(db: &Pool, ids: &[DriverId]) -> Result<Vec<(DriverId, LatLng)>, sqlx::Error> {
    let rows: Vec<(DriverId, f64, f64)> = sqlx::query_as(
        "-- places of drivers
         SELECT id, lat, lng FROM drivers WHERE id = ANY($1)",
    )
    .bind(ids.iter().map(DriverId::as_str).collect::<Vec<_>>())
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(|(id, lat, lng)| (id, LatLng::new(lat, lng))).collect())
}

/// Returns the time of a driver's position. Returns `None` if it is unknown or the driver does not exist.
pub async fn find_located_at(db: &Pool, id: &DriverId) -> Result<Option<DateTime<Utc>>, sqlx::Error> {
    let found: Option<Option<DateTime<Utc>>> = sqlx::query_scalar(
        "-- when a driver was located
         SELECT located_at FROM drivers WHERE id = $1",
    )
    .bind(id)
    .fetch_optional(db)
    .await?;
    Ok(found.flatten())
}

/// Position fix from the driver's device.
#[derive(Debug, Clone, Copy)]
pub struct DriverFix {
    pub place: LatLng,
    /// Time of the fix on the device. `None` means the arrival of the request.
    pub at: Option<DateTime<Utc>>,
}

#[derive(Debug, Clone)]
pub struct LocatedDriver {
    pub place: DriverPlace,
    pub located_at: Option<DateTime<Utc>>,
    pub verdict: FixVerdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FixVerdict {
    Recorded,
    /// A newer fix is known.
    Older,
    /// The fix is older than [`OLDEST_FIX`], or ahead of the clock by more than [`CLOCK_DIFFERENCE`].
    OutOfRange,
}

pub const OLDEST_FIX: Duration = Duration::from_secs(86_400);
/// Maximum lead of a fix over Postgres' clock. The clocks of devices differ.
pub const CLOCK_DIFFERENCE: Duration = Duration::from_secs(60);

/// Stores a driver's position unless a newer fix is known. A stored time too far in the future is ignored, because
/// Postgres' clock was set back since. Returns `None` if the driver does not exist. The commit does not wait for the
/// disk. A position lost in a crash of Postgres is replaced by the next one. No other statement may do this.
pub async fn move_to(db: &Pool, id: &DriverId, fix: DriverFix) -> Result<Option<LocatedDriver>, sqlx::Error> {
    let moved = sqlx::query(
        "-- move driver
         UPDATE drivers SET lat = $2, lng = $3, located_at = coalesce($4, dispatchq_now()), updated_at = dispatchq_now()
         WHERE id = $1 AND ($4::timestamptz IS NULL OR located_at IS NULL OR $4 >= located_at
                            OR located_at > dispatchq_now() + $6 * interval '1 second')
           AND ($4::timestamptz IS NULL OR $4 BETWEEN dispatchq_now() - $5 * interval '1 second' AND dispatchq_now() + $6 * interval '1 second')
           AND set_config('synchronous_commit', 'off', true) IS NOT NULL
         RETURNING id, service_types, lat, lng, available, located_at",
    )
    .bind(id)
    .bind(fix.place.lat)
    .bind(fix.place.lng)
    .bind(fix.at)
    .bind(OLDEST_FIX.as_secs_f64())
    .bind(CLOCK_DIFFERENCE.as_secs_f64())
    .fetch_optional(db)
    .await?;
    if let Some(row) = moved {
        return read_located(&row, FixVerdict::Recorded).map(Some);
    }
    let kept = sqlx::query(
        "-- place of driver
         SELECT id, service_types, lat, lng, available, located_at, $2 < located_at
                    AND $2 >= dispatchq_now() - $3 * interval '1 second' AS is_older
         FROM drivers WHERE id = $1",
    )
    .bind(id)
    .bind(fix.at)
    .bind(OLDEST_FIX.as_secs_f64())
    .fetch_optional(db)
    .await?;
    kept.map(|row| {
        let is_older: Option<bool> = row.try_get("is_older")?;
        let verdict = if is_older == Some(true) { FixVerdict::Older } else { FixVerdict::OutOfRange };
        read_located(&row, verdict)
    })
    .transpose()
}

fn read_located(row: &PgRow, verdict: FixVerdict) -> Result<LocatedDriver, sqlx::Error> {
    Ok(LocatedDriver { place: DriverPlace::from_row(row)?, located_at: row.try_get("located_at")?, verdict })
}

/// Stores whether a driver is available. A driver who becomes available is idle from now on. Returns `None` if the
/// driver does not exist.
pub async fn set_available(db: &Pool, id: &DriverId, available: bool) -> Result<Option<DriverPlace>, sqlx::Error> {
    sqlx::query_as(
        "-- set driver available
         UPDATE drivers SET available = $2 AND disabled_at IS NULL, updated_at = dispatchq_now(),
                idle_since = CASE WHEN $2 AND NOT available THEN dispatchq_now() ELSE idle_since END
         WHERE id = $1
         RETURNING id, service_types, lat, lng, available",
    )
    .bind(id)
    .bind(available)
    .fetch_optional(db)
    .await
}

pub async fn list_drivers(db: &Pool, limit: u32) -> Result<Vec<DriverRecord>, sqlx::Error> {
    sqlx::query_as(
        "-- list drivers
         SELECT d.id, d.name, d.service_types, d.skills, d.lat, d.lng, d.available, d.idle_since, o.id AS active_order, d.disabled_at
         FROM drivers d
         LEFT JOIN orders o ON o.driver_id = d.id AND o.on_trip
              AND o.partner IS NULL
         ORDER BY d.id LIMIT $1",
    )
    .bind(i64::from(limit))
    .fetch_all(db)
    .await
}

/// Returns whether the driver exists and is not disabled.
pub async fn driver_exists(db: &Pool, id: &DriverId) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(
        "-- driver exists
                        SELECT EXISTS (SELECT 1 FROM drivers WHERE id = $1 AND disabled_at IS NULL)",
    )
    .bind(id)
    .fetch_one(db)
    .await
}

/// Disables or enables a driver. A disabled driver gets no offers, the driver's keys are refused, and the sessions and
/// links of the driver page end. Returns false if the driver does not exist.
pub async fn set_disabled(db: impl PgExecutor<'_>, id: &DriverId, disabled: bool) -> Result<bool, sqlx::Error> {
    let updated = sqlx::query(
        "-- set driver disabled
         WITH ended AS (DELETE FROM driver_sessions WHERE driver_id = $1 AND $2),
              voided AS (DELETE FROM driver_sign_in_links WHERE driver_id = $1 AND $2)
         UPDATE drivers SET disabled_at = CASE WHEN $2 THEN coalesce(disabled_at, dispatchq_now()) END,
                available = available AND NOT $2, updated_at = dispatchq_now()
         WHERE id = $1",
    )
    .bind(id)
    .bind(disabled)
    .execute(db)
    .await?;
    Ok(updated.rows_affected() == 1)
}
