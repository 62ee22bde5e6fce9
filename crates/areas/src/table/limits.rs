//! Rows of area limits.

use std::collections::BTreeSet;

use model::{
    admission::{
        limits::LoyaltyLevel,
        schedule::{ScheduledThreshold, ThresholdSchedule},
    },
    field_error::FieldError,
    ids::{AreaId, ServiceType},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    ChangeAuthor, TableError, limit_field::LimitField, lock_admission, lock_area, record_change, require_version,
};
use foundation::db::Pool;

/// Limits of an area for one service type. A field that is `None` inherits the installation's value. Source: the
/// requirement on server busy, 3.3 and 4.5.2.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema, sqlx::FromRow)]
#[serde(default)]
#[schema(as = AreaLimits)]
pub struct LimitsRow {
    #[schema(value_type = String, required)]
    pub area_id: AreaId,
    #[schema(value_type = String, required)]
    pub service_type: ServiceType,
    pub max_waiting_orders: Option<i64>,
    /// Time after its creation during which an order counts as waiting; null: its whole lifetime.
    pub waiting_timeout_sec: Option<i64>,
    pub dispatch_timeout_sec: Option<i64>,
    pub order_lifetime_sec: Option<i64>,
    pub retry_interval_sec: Option<i64>,
    pub busy_retry_interval_sec: Option<i64>,
    pub cooldown_period_sec: Option<i64>,
    pub low_water_percentage: Option<i32>,
    pub bypass_enabled: Option<bool>,
    pub bypass_loyalty_levels: Option<Vec<String>>,
    pub max_bypass_percentage: Option<i32>,
    /// Maximum number of scheduled orders with a pickup in the same hour; null: no limit.
    pub max_scheduled_per_hour: Option<i64>,
    /// Thresholds by weekday and time of day, in the area's time zone; null: the same at all times.
    #[schema(value_type = Option<Vec<ScheduledThreshold>>)]
    pub schedule: Option<Value>,
    #[schema(required)]
    pub enabled: bool,
    /// Priority of the area for this service type where areas overlap. It is compared before the priority of the areas;
    /// the highest wins.
    #[schema(required)]
    pub priority: i32,
    #[schema(required)]
    pub version: i64,
}

/// Change of an area's limits. Fields that are `None` keep their value; fields in `inherit` return to the
/// installation's value.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct LimitsChange {
    #[schema(value_type = String, required)]
    pub service_type: ServiceType,
    #[schema(minimum = 0, maximum = 1000000)]
    pub max_waiting_orders: Option<i64>,
    /// Time after its creation during which an order counts as waiting. The order's lifetime is `order_lifetime_sec`.
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
    /// Maximum number of scheduled orders (`pickup_at`) with a pickup in the same hour of the area's clock.
    #[schema(minimum = 0, maximum = 1000000)]
    pub max_scheduled_per_hour: Option<i64>,
    /// Thresholds by weekday and time of day, in the area's time zone, instead of `max_waiting_orders`; empty: none.
    pub schedule: Option<Vec<ScheduledThreshold>>,
    pub enabled: Option<bool>,
    #[schema(minimum = -2147483648, maximum = 2147483647)]
    pub priority: Option<i32>,
    /// Fields to reset to the installation's value. In JSON, a field is reset by setting it to null.
    #[serde(skip)]
    pub inherit: BTreeSet<LimitField>,
    /// Reason to store in the audit.
    #[schema(max_length = 500, pattern = "^[^\\u0000]*$")]
    pub reason: Option<String>,
}

impl LimitsChange {
    /// Returns a change that resets all limits of this service type to the installation's values.
    pub fn inherit_all(service_type: ServiceType) -> Self {
        Self { service_type, inherit: LimitField::ALL.into(), ..Self::default() }
    }

    fn sets(&self, field: LimitField) -> bool {
        match field {
            LimitField::MaxWaitingOrders => self.max_waiting_orders.is_some(),
            LimitField::DispatchTimeout => self.dispatch_timeout_sec.is_some(),
            LimitField::WaitingTimeout => self.waiting_timeout_sec.is_some(),
            LimitField::OrderLifetime => self.order_lifetime_sec.is_some(),
            LimitField::RetryInterval => self.retry_interval_sec.is_some(),
            LimitField::BusyRetryInterval => self.busy_retry_interval_sec.is_some(),
            LimitField::CooldownPeriod => self.cooldown_period_sec.is_some(),
            LimitField::LowWaterPercentage => self.low_water_percentage.is_some(),
            LimitField::BypassEnabled => self.bypass_enabled.is_some(),
            LimitField::BypassLoyaltyLevels => self.bypass_loyalty_levels.is_some(),
            LimitField::MaxBypassPercentage => self.max_bypass_percentage.is_some(),
            LimitField::MaxScheduledPerHour => self.max_scheduled_per_hour.is_some(),
            LimitField::Schedule => self.schedule.is_some(),
            LimitField::Enabled => self.enabled.is_some(),
            LimitField::Priority => self.priority.is_some(),
        }
    }

    fn find_problem(&self) -> Option<FieldError> {
        if let Some(field) = self.inherit.iter().find(|field| self.sets(**field)) {
            return Some(FieldError::new(
                "inherit",
                format!("{field} is both set and inherited; use only one of them"),
            ));
        }
        if let Some(Err(error)) = self.schedule.clone().map(ThresholdSchedule::new) {
            return Some(FieldError::new("schedule", format!("schedule: {error}")));
        }
        for (name, value, range) in [
            ("max_waiting_orders", self.max_waiting_orders, 0..=1_000_000),
            ("max_scheduled_per_hour", self.max_scheduled_per_hour, 0..=1_000_000),
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
                let text = format!("{name} must be {} to {}", range.start(), range.end());
                return Some(FieldError::new(name, text));
            }
        }
        let levels = self.bypass_loyalty_levels.iter().flatten();
        let unknown = levels.into_iter().find(|level| level.parse::<LoyaltyLevel>().is_err());
        unknown.map(|level| {
            let text = format!("bypass_loyalty_levels: '{level}' is not one of EXPLORER, TRAVELER, VOYAGER, ELITE");
            FieldError::new("bypass_loyalty_levels", text)
        })
    }

    fn apply_to(&self, row: &mut LimitsRow) {
        let set = |field: &mut Option<i64>, value: Option<i64>| {
            if value.is_some() {
                *field = value;
            }
        };
        set(&mut row.max_waiting_orders, self.max_waiting_orders);
        set(&mut row.dispatch_timeout_sec, self.dispatch_timeout_sec);
        set(&mut row.waiting_timeout_sec, self.waiting_timeout_sec);
        set(&mut row.order_lifetime_sec, self.order_lifetime_sec);
        set(&mut row.retry_interval_sec, self.retry_interval_sec);
        set(&mut row.busy_retry_interval_sec, self.busy_retry_interval_sec);
        set(&mut row.cooldown_period_sec, self.cooldown_period_sec);
        set(&mut row.max_scheduled_per_hour, self.max_scheduled_per_hour);
        row.low_water_percentage = self.low_water_percentage.or(row.low_water_percentage);
        row.bypass_enabled = self.bypass_enabled.or(row.bypass_enabled);
        row.max_bypass_percentage = self.max_bypass_percentage.or(row.max_bypass_percentage);
        if let Some(levels) = &self.bypass_loyalty_levels {
            row.bypass_loyalty_levels = Some(levels.clone());
        }
        if let Some(schedule) = &self.schedule {
            row.schedule = (!schedule.is_empty()).then(|| json!(schedule));
        }
        row.enabled = self.enabled.unwrap_or(row.enabled);
        row.priority = self.priority.unwrap_or(row.priority);
        for field in &self.inherit {
            match field {
                LimitField::MaxWaitingOrders => row.max_waiting_orders = None,
                LimitField::WaitingTimeout => row.waiting_timeout_sec = None,
                LimitField::DispatchTimeout => row.dispatch_timeout_sec = None,
                LimitField::OrderLifetime => row.order_lifetime_sec = None,
                LimitField::RetryInterval => row.retry_interval_sec = None,
                LimitField::BusyRetryInterval => row.busy_retry_interval_sec = None,
                LimitField::CooldownPeriod => row.cooldown_period_sec = None,
                LimitField::LowWaterPercentage => row.low_water_percentage = None,
                LimitField::BypassEnabled => row.bypass_enabled = None,
                LimitField::BypassLoyaltyLevels => row.bypass_loyalty_levels = None,
                LimitField::MaxBypassPercentage => row.max_bypass_percentage = None,
                LimitField::Schedule => row.schedule = None,
                LimitField::MaxScheduledPerHour => row.max_scheduled_per_hour = None,
                // The installation has no value for these two fields. By default an area accepts orders, and only the
                // priority of the area itself counts.
                LimitField::Enabled => row.enabled = true,
                LimitField::Priority => row.priority = 0,
            }
        }
    }
}

pub async fn list_limits(db: &Pool, area: Option<&AreaId>) -> Result<Vec<LimitsRow>, sqlx::Error> {
    sqlx::query_as(
        "-- list limits
         SELECT * FROM area_limits WHERE $1::text IS NULL OR area_id = $1 ORDER BY area_id, service_type",
    )
    .bind(area)
    .fetch_all(db)
    .await
}

#[derive(Debug, Clone, PartialEq)]
pub struct ChangedLimits {
    pub row: LimitsRow,
    /// Whether anything was changed and written.
    pub has_changed: bool,
}

/// Changes the limits of an area for one service type and returns them. `expected` is the version that the author has
/// seen.
pub async fn set_limits(
    db: &Pool,
    area: &AreaId,
    change: &LimitsChange,
    expected: Option<i64>,
    author: ChangeAuthor<'_>,
) -> Result<LimitsRow, TableError> {
    Ok(change_limits(db, area, change, expected, author).await?.row)
}

/// Same as [`set_limits`], but also returns whether anything has changed.
pub async fn change_limits(
    db: &Pool,
    area: &AreaId,
    change: &LimitsChange,
    expected: Option<i64>,
    author: ChangeAuthor<'_>,
) -> Result<ChangedLimits, TableError> {
    if let Some(problem) = change.find_problem() {
        return Err(problem.into());
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
    let as_it_is = before.clone().unwrap_or_else(|| LimitsRow {
        area_id: area.clone(),
        service_type: change.service_type.clone(),
        enabled: true,
        ..LimitsRow::default()
    });
    let mut row = as_it_is.clone();
    change.apply_to(&mut row);
    if row == as_it_is {
        return Ok(ChangedLimits { row, has_changed: false });
    }
    row.version = version + 1;
    sqlx::query(include_str!("change_limits.sql"))
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
        .bind(&row.schedule)
        .bind(row.waiting_timeout_sec)
        .bind(row.max_scheduled_per_hour)
        .execute(&mut *tx)
        .await?;
    record_change(&mut tx, author, "limits set", Some(area), before.map(|row| json!(row)), Some(json!(row))).await?;
    tx.commit().await?;
    Ok(ChangedLimits { row, has_changed: true })
}
