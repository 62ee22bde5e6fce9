//! Driver administration by staff: add, change, disable, list. Each change and its audit record are one transaction.

use std::time::Duration;

use model::{
    field_error::FieldError,
    ids::{DriverId, ServiceType},
    skills::SkillSet,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    capability::Orders,
    fleet::{
        driver_index,
        drivers::{self, DriverRecord, NewDriver, null_as_empty, present_or_null},
    },
    freed_drivers,
};
use accounts::{key_admin::KeySelection, recorded};
use foundation::{
    db::{Connection, Pool, Transaction},
    staff_actions::{ActionAuthor, ActionValues, StaffAction, record_action},
};
use settings::Config;

#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    #[error("no driver with this id")]
    NotFound,
    #[error("driver '{0}' exists")]
    Exists(DriverId),
    #[error(transparent)]
    Invalid(FieldError),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// Fields to change. Omitted fields keep their values.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriverChange {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_types: Option<Vec<ServiceType>>,
    /// Phone number. Null removes it.
    #[serde(default, deserialize_with = "present_or_null", skip_serializing_if = "Option::is_none")]
    pub phone: Option<Option<String>>,
    /// Name for people. Null removes it.
    #[serde(default, deserialize_with = "present_or_null", skip_serializing_if = "Option::is_none")]
    pub name: Option<Option<String>>,
    /// All labels of the driver. Null or an empty list removes them.
    #[serde(default, deserialize_with = "null_as_empty", skip_serializing_if = "Option::is_none")]
    pub skills: Option<SkillSet>,
}

impl DriverChange {
    /// Returns the first invalid field, if any.
    fn find_problem(&self, config: &Config) -> Option<FieldError> {
        let service_types = self.service_types.as_deref();
        service_types
            .and_then(|service_types| drivers::find_type_problem(config, service_types))
            .or_else(|| drivers::find_phone_problem(self.phone.as_ref()))
            .or_else(|| drivers::find_name_problem(self.name.as_ref()))
            .or_else(|| drivers::find_skill_problem(self.skills.as_ref()))
    }
}

pub async fn create_driver(
    orders: &Orders,
    new: &NewDriver,
    by: ActionAuthor<'_>,
) -> Result<DriverRecord, DriverError> {
    if let Some(problem) = new.find_problem(&orders.config) {
        return Err(DriverError::Invalid(problem));
    }
    let mut tx = orders.core.db.begin().await?;
    let added = sqlx::query(
        "-- add driver
         INSERT INTO drivers (id, service_types, lat, lng, available, phone, name, skills)
         VALUES ($1, $2, $3, $4, $5, $6, $7, coalesce($8::text[], '{}'))
         ON CONFLICT (id) DO NOTHING",
    )
    .bind(&new.id)
    .bind(drivers::distinct_types(&new.service_types))
    .bind(new.latitude)
    .bind(new.longitude)
    .bind(new.available)
    .bind(new.phone.as_ref().and_then(Option::as_ref))
    .bind(new.name.as_ref().and_then(Option::as_ref))
    .bind(new.skills.as_ref().map(drivers::skill_texts))
    .execute(&mut *tx)
    .await?;
    if added.rows_affected() == 0 {
        return Err(DriverError::Exists(new.id.clone()));
    }
    let recorded = json!({
        "service_types": new.service_types, "skills": new.skills.clone().unwrap_or_default(), "available": new.available,
    });
    finish_change(orders, tx, &new.id, StaffAction::DriverCreated, ActionValues::created(recorded), by).await
}

pub async fn change_driver(
    orders: &Orders,
    id: &DriverId,
    change: &DriverChange,
    by: ActionAuthor<'_>,
) -> Result<DriverRecord, DriverError> {
    if let Some(problem) = change.find_problem(&orders.config) {
        return Err(DriverError::Invalid(problem));
    }
    let mut tx = orders.core.db.begin().await?;
    let before: Option<DriverValues> = sqlx::query_as(
        "-- lock driver
         SELECT service_types, skills, name, phone FROM drivers WHERE id = $1 FOR NO KEY UPDATE",
    )
    .bind(id)
    .fetch_optional(&mut *tx)
    .await?;
    let Some(before) = before else { return Err(DriverError::NotFound) };
    let changed = sqlx::query(
        "-- change driver
         UPDATE drivers SET service_types = coalesce($2::text[], service_types),
                phone = CASE WHEN $3 THEN $4 ELSE phone END, name = CASE WHEN $5 THEN $6 ELSE name END,
                skills = coalesce($7::text[], skills), updated_at = dispatchq_now()
         WHERE id = $1",
    )
    .bind(id)
    .bind(change.service_types.as_deref().map(drivers::distinct_types))
    .bind(change.phone.is_some())
    .bind(change.phone.as_ref().and_then(Option::as_ref))
    .bind(change.name.is_some())
    .bind(change.name.as_ref().and_then(Option::as_ref))
    .bind(change.skills.as_ref().map(drivers::skill_texts))
    .execute(&mut *tx)
    .await?;
    if changed.rows_affected() == 0 {
        return Err(DriverError::NotFound);
    }
    let changed =
        finish_change(orders, tx, id, StaffAction::DriverChanged, recorded_values(&before, change), by).await?;
    if change.skills.is_some() {
        // Orders that wait may require one of the new labels.
        freed_drivers::record_freed(&orders.core, std::slice::from_ref(id), Duration::ZERO).await;
    }
    Ok(changed)
}

/// Values of a driver before a change.
#[derive(sqlx::FromRow)]
struct DriverValues {
    service_types: Vec<ServiceType>,
    skills: Vec<String>,
    name: Option<String>,
    phone: Option<String>,
}

/// Returns the values for the audit record. It shows that the name or the number changed, but neither of them.
fn recorded_values(before: &DriverValues, change: &DriverChange) -> ActionValues {
    let has = |new: Option<&Option<String>>, old: &Option<String>| new.unwrap_or(old).is_some();
    let is_new = |new: Option<&Option<String>>, old: &Option<String>| new.is_some_and(|new| new != old);
    let (name, phone) = (change.name.as_ref(), change.phone.as_ref());
    ActionValues::changed(
        json!({
            "service_types": before.service_types, "skills": before.skills, "has_name": before.name.is_some(),
            "has_phone": before.phone.is_some(),
        }),
        json!({
            "service_types": change.service_types.as_ref().unwrap_or(&before.service_types),
            "skills": change.skills.as_ref().map_or_else(|| json!(before.skills), |skills| json!(skills)),
            "has_name": has(name, &before.name), "name_changed": is_new(name, &before.name),
            "has_phone": has(phone, &before.phone), "phone_changed": is_new(phone, &before.phone),
        }),
    )
}

/// Adds drivers or updates existing ones, each with an audit record, all or none. A driver whose position alone changes
/// has no record.
pub async fn import_drivers(db: &Pool, new: &[NewDriver], by: ActionAuthor<'_>) -> Result<(), sqlx::Error> {
    let mut tx = db.begin().await?;
    for driver in new {
        let old = find_values(&mut tx, &driver.id).await?;
        drivers::save_driver(&mut *tx, driver).await?;
        let new = find_values(&mut tx, &driver.id).await?;
        let action = if old.is_some() { StaffAction::DriverChanged } else { StaffAction::DriverCreated };
        if old != new {
            record_action(&mut tx, by, action, &driver.id, ActionValues { old, new }).await?;
        }
    }
    tx.commit().await
}

/// Locks a driver's row and returns its values for audit records, which never contain the name or the phone number. Returns `None`
/// if the driver does not exist.
async fn find_values(tx: &mut Connection, id: &DriverId) -> Result<Option<Value>, sqlx::Error> {
    sqlx::query_scalar(
        "-- lock driver for its record
         SELECT jsonb_build_object(
             'service_types', service_types, 'skills', skills, 'available', available, 'has_name', name IS NOT NULL,
             'has_phone', phone IS NOT NULL, 'disabled', disabled_at IS NOT NULL)
         FROM drivers WHERE id = $1 FOR UPDATE",
    )
    .bind(id)
    .fetch_optional(tx)
    .await
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriverRemoval {
    /// The row was deleted, and this many keys were revoked.
    Removed {
        keys: usize,
    },
    /// The driver has this active order.
    Busy {
        order: String,
    },
    NoSuchDriver,
}

/// Removes a driver and revokes the driver's keys, with an audit record for each. The history keeps the id; see
/// `privacy erase`.
pub async fn remove_driver(db: &Pool, id: &DriverId, by: ActionAuthor<'_>) -> Result<DriverRemoval, sqlx::Error> {
    let mut tx = db.begin().await?;
    let order: Option<String> = sqlx::query_scalar(
        "-- order of driver
         SELECT id FROM orders WHERE driver_id = $1 AND on_trip AND partner IS NULL",
    )
    .bind(id)
    .fetch_optional(&mut *tx)
    .await?;
    if let Some(order) = order {
        return Ok(DriverRemoval::Busy { order });
    }
    let old = find_values(&mut tx, id).await?;
    sqlx::query(
        "-- remove driver
         DELETE FROM drivers WHERE id = $1",
    )
    .bind(id)
    .execute(&mut *tx)
    .await?;
    let keys = recorded::revoke_keys_in(&mut tx, &KeySelection::Driver(id.clone()), by).await?.len();
    if old.is_none() && keys == 0 {
        return Ok(DriverRemoval::NoSuchDriver);
    }
    if let Some(old) = old {
        record_action(&mut tx, by, StaffAction::DriverRemoved, id, ActionValues::removed(old)).await?;
    }
    tx.commit().await?;
    Ok(DriverRemoval::Removed { keys })
}

/// Returns the driver's phone number and records that the actor saw it. Returns `None` if no number is stored.
pub async fn reveal_phone(db: &Pool, id: &DriverId, by: ActionAuthor<'_>) -> Result<Option<String>, DriverError> {
    let mut tx = db.begin().await?;
    let phone: Option<Option<String>> = sqlx::query_scalar(
        "-- phone of driver
         SELECT phone FROM drivers WHERE id = $1",
    )
    .bind(id)
    .fetch_optional(&mut *tx)
    .await?;
    let phone = phone.ok_or(DriverError::NotFound)?;
    let values = ActionValues::changed(json!({ "phone_shown": false }), json!({ "phone_shown": true }));
    record_action(&mut tx, by, StaffAction::DriverPhoneShown, id, values).await?;
    tx.commit().await?;
    Ok(phone)
}

/// Disables or enables a driver. A disabled driver gets no offers, and the driver's keys are refused. The driver keeps
/// an active order.
pub async fn set_disabled(db: &Pool, id: &DriverId, disabled: bool, by: ActionAuthor<'_>) -> Result<(), DriverError> {
    let mut tx = db.begin().await?;
    let was_disabled: Option<bool> = sqlx::query_scalar(
        "-- lock disabled driver
         SELECT disabled_at IS NOT NULL FROM drivers WHERE id = $1 FOR NO KEY UPDATE",
    )
    .bind(id)
    .fetch_optional(&mut *tx)
    .await?;
    if !drivers::set_disabled(&mut *tx, id, disabled).await? {
        return Err(DriverError::NotFound);
    }
    let action = if disabled { StaffAction::DriverDisabled } else { StaffAction::DriverEnabled };
    let values = ActionValues::changed(json!({ "disabled": was_disabled }), json!({ "disabled": disabled }));
    record_action(&mut tx, by, action, id, values).await?;
    Ok(tx.commit().await?)
}

/// Records and commits the change. Invalidates the index, which stores drivers by service type.
async fn finish_change(
    orders: &Orders,
    mut tx: Transaction<'static>,
    id: &DriverId,
    action: StaffAction,
    values: ActionValues,
    by: ActionAuthor<'_>,
) -> Result<DriverRecord, DriverError> {
    record_action(&mut tx, by, action, id, values).await?;
    tx.commit().await?;
    driver_index::invalidate_index(orders).await;
    drivers::find_driver(&orders.core.db, id).await?.ok_or(DriverError::NotFound)
}

/// Filter for drivers. `None` matches every driver.
#[derive(Debug, Clone, Default)]
pub struct DriverFilter {
    pub service_type: Option<ServiceType>,
    pub available: Option<bool>,
    pub disabled: Option<bool>,
}

/// Returns one page of drivers in the order of their ids, starting after `after`.
pub async fn list_page(
    db: &Pool,
    filter: &DriverFilter,
    after: Option<&DriverId>,
    limit: u32,
) -> Result<Vec<DriverRecord>, sqlx::Error> {
    sqlx::query_as(
        "-- list page of drivers
         SELECT d.id, d.name, d.service_types, d.skills, d.lat, d.lng, d.available, d.idle_since, o.id AS active_order, d.disabled_at
         FROM drivers d
         LEFT JOIN orders o ON o.driver_id = d.id AND o.on_trip
              AND o.partner IS NULL
         WHERE ($1::text IS NULL OR $1 = ANY (d.service_types)) AND ($2::boolean IS NULL OR d.available = $2)
           AND ($3::boolean IS NULL OR (d.disabled_at IS NOT NULL) = $3) AND ($4::text IS NULL OR d.id > $4)
         ORDER BY d.id LIMIT $5",
    )
    .bind(&filter.service_type)
    .bind(filter.available)
    .bind(filter.disabled)
    .bind(after)
    .bind(i64::from(limit))
    .fetch_all(db)
    .await
}
