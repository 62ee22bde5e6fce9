//! Driver administration by staff: add, change, disable, list. Each change and its audit record are one transaction.

use model::{
    field_error::FieldError,
    ids::{DriverId, ServiceType},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    capability::Orders,
    fleet::{
        driver_index,
        drivers::{self, DriverRecord, NewDriver, present_or_null},
    },
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
}

impl DriverChange {
    /// Returns the first invalid field, if any.
    fn find_problem(&self, config: &Config) -> Option<FieldError> {
        let service_types = self.service_types.as_deref();
        service_types
            .and_then(|service_types| drivers::find_type_problem(config, service_types))
            .or_else(|| drivers::find_phone_problem(self.phone.as_ref()))
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
         INSERT INTO drivers (id, service_types, lat, lng, available, phone) VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (id) DO NOTHING",
    )
    .bind(&new.id)
    .bind(drivers::distinct_types(&new.service_types))
    .bind(new.latitude)
    .bind(new.longitude)
    .bind(new.available)
    .bind(new.phone.as_ref().and_then(Option::as_ref))
    .execute(&mut *tx)
    .await?;
    if added.rows_affected() == 0 {
        return Err(DriverError::Exists(new.id.clone()));
    }
    let recorded = json!({ "service_types": new.service_types, "available": new.available });
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
    let before: Option<(Vec<ServiceType>, Option<String>)> = sqlx::query_as(
        "-- lock driver
         SELECT service_types, phone FROM drivers WHERE id = $1 FOR NO KEY UPDATE",
    )
    .bind(id)
    .fetch_optional(&mut *tx)
    .await?;
    let Some((service_types, phone)) = before else { return Err(DriverError::NotFound) };
    let changed = sqlx::query(
        "-- change driver
         UPDATE drivers SET service_types = coalesce($2::text[], service_types),
                phone = CASE WHEN $3 THEN $4 ELSE phone END, updated_at = dispatchq_now()
         WHERE id = $1",
    )
    .bind(id)
    .bind(change.service_types.as_deref().map(drivers::distinct_types))
    .bind(change.phone.is_some())
    .bind(change.phone.as_ref().and_then(Option::as_ref))
    .execute(&mut *tx)
    .await?;
    if changed.rows_affected() == 0 {
        return Err(DriverError::NotFound);
    }
    // The record shows that the number changed, but not the number.
    let is_new_phone = change.phone.as_ref().is_some_and(|new| *new != phone);
    let new_types = change.service_types.as_ref().unwrap_or(&service_types);
    let values = ActionValues::changed(
        json!({ "service_types": service_types, "has_phone": phone.is_some() }),
        json!({
            "service_types": new_types,
            "has_phone": change.phone.as_ref().map_or(phone.is_some(), Option::is_some),
            "phone_changed": is_new_phone,
        }),
    );
    finish_change(orders, tx, id, StaffAction::DriverChanged, values, by).await
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

/// Locks a driver's row and returns its values for audit records, which never contain the phone number. Returns `None`
/// if the driver does not exist.
async fn find_values(tx: &mut Connection, id: &DriverId) -> Result<Option<Value>, sqlx::Error> {
    let found: Option<(Vec<ServiceType>, bool, bool, bool)> = sqlx::query_as(
        "-- lock driver for its record
         SELECT service_types, available, phone IS NOT NULL, disabled_at IS NOT NULL FROM drivers WHERE id = $1 FOR UPDATE",
    )
    .bind(id)
    .fetch_optional(tx)
    .await?;
    Ok(found.map(|(service_types, available, has_phone, disabled)| {
        json!({ "service_types": service_types, "available": available, "has_phone": has_phone, "disabled": disabled })
    }))
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
         SELECT d.id, d.service_types, d.lat, d.lng, d.available, d.idle_since, o.id AS active_order, d.disabled_at
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
