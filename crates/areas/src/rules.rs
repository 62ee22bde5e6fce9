//! The whole configuration of areas in memory.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use chrono::{DateTime, Utc};
use model::{
    admission::{
        decide::AdmissionCaller,
        limits::{AdmissionFlag, AreaDurations, AreaLimits, AreaOverride, LimitsTable, LoyaltyLevel},
        schedule::{AreaTimeZone, LocalSchedule, ScheduledThreshold, ThresholdSchedule},
    },
    area::{Area, Geofence},
    ids::{AreaId, AreaKey, LatLng, ServiceType},
};
use parking_lot::RwLock;
use serde_json::Value;
use sqlx::types::Json;

use crate::{
    import::{self, ImportError},
    table::limits::LimitsRow,
};
use foundation::{db::Pool, error::ServiceError};
use settings::AdmissionConfig;

/// Snapshot of the configuration of areas.
#[derive(Debug, Default)]
pub struct AdmissionRules {
    pub geofence: Arc<Geofence>,
    pub flag: AdmissionFlag,
    overrides: HashMap<AreaId, AreaOverride>,
    limits: LimitsTable,
    schedules: HashMap<AreaKey, LocalSchedule>,
    defaults: Option<AreaLimits>,
    /// Areas in Postgres that are left out because they could not be parsed.
    pub unreadable: Vec<AreaId>,
    revision: i64,
    /// Version of the areas without the other rules. Areas are parsed again only when it changes, because parsing is
    /// expensive.
    areas_revision: i64,
}

impl AdmissionRules {
    /// Returns the area at a location for a service type.
    pub fn find_area(&self, place: LatLng, service_type: &ServiceType) -> Option<&Area> {
        self.geofence.find_area(place, service_type, |area| self.limits_for(area, service_type).priority)
    }

    /// Returns the limits of this area and service type at this time, including the schedule.
    pub fn limits_at(&self, area: &AreaId, service_type: &ServiceType, now: DateTime<Utc>) -> AreaLimits {
        let mut limits = self.limits_for(area, service_type).clone();
        if let Some(threshold) = self.scheduled_threshold(area, service_type, now) {
            limits.max_waiting = threshold;
        }
        limits
    }

    /// Returns the scheduled threshold, or `None` if no schedule covers this time.
    pub fn scheduled_threshold(&self, area: &AreaId, service_type: &ServiceType, now: DateTime<Utc>) -> Option<i64> {
        self.schedules.get(&AreaKey::new(area, service_type))?.threshold_at(now)
    }

    /// Returns the limits of this area and service type without the schedule.
    pub fn limits_for(&self, area: &AreaId, service_type: &ServiceType) -> &AreaLimits {
        static FALLBACK: std::sync::LazyLock<AreaLimits> =
            std::sync::LazyLock::new(|| AdmissionConfig::default().default_limits());
        let own = self.limits.get(&AreaKey::new(area, service_type)).map(|(limits, _)| limits);
        own.or(self.defaults.as_ref()).unwrap_or(&FALLBACK)
    }

    /// Returns the durations for dispatch that are set for the area itself.
    pub fn durations_for(&self, area: &AreaId, service_type: &ServiceType) -> AreaDurations {
        let own = self.limits.get(&AreaKey::new(area, service_type));
        own.map(|(_, durations)| durations.clone()).unwrap_or_default()
    }

    /// Returns the areas and service types that have their own limits.
    pub fn configured_areas(&self) -> impl Iterator<Item = &AreaKey> {
        self.limits.keys()
    }

    /// Returns whether a pickup outside all areas is refused. It is accepted while the flag names individual areas or
    /// is in shadow mode.
    pub fn refuses_outside(&self, asker: AdmissionCaller<'_>) -> bool {
        let flag = &self.flag;
        let everywhere = flag.enabled_areas.is_empty() && !flag.shadow_mode && !self.geofence.is_empty();
        everywhere && flag.applies_to(None, asker.channel, asker.user)
    }

    /// Returns the overrides that have not expired.
    pub fn overrides_in_force(&self, now: DateTime<Utc>) -> impl Iterator<Item = &AreaOverride> {
        self.overrides.values().filter(move |forced| forced.is_in_force(now))
    }

    /// Returns the waiting windows by area and service type, for those that have one.
    pub fn waiting_windows(&self) -> BTreeMap<AreaKey, Duration> {
        let windows = self.limits.iter().filter_map(|(key, (limits, _))| Some((key.clone(), limits.waiting_window?)));
        windows.collect()
    }

    /// Returns the number of the latest change that these rules include.
    pub fn revision(&self) -> i64 {
        self.revision
    }

    pub fn override_for(&self, area: &AreaId) -> Option<&AreaOverride> {
        self.overrides.get(area)
    }
}

/// The rules of this process. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct RulesHandle {
    rules: Arc<RwLock<Arc<AdmissionRules>>>,
}

impl RulesHandle {
    pub fn get(&self) -> Arc<AdmissionRules> {
        self.rules.read().clone()
    }

    pub(crate) fn set(&self, rules: AdmissionRules) {
        *self.rules.write() = Arc::new(rules);
    }
}

#[derive(sqlx::FromRow)]
struct GeofenceRow {
    id: AreaId,
    name: String,
    priority: i32,
    geometry: Option<Json<Value>>,
    geohashes: Vec<String>,
    service_type: Vec<ServiceType>,
    time_zone: Option<String>,
}

/// Loads all rules from one snapshot. Areas are reused from `known` if they have not changed.
pub(crate) async fn load_rules(
    db: &Pool,
    config: &AdmissionConfig,
    known: &AdmissionRules,
) -> Result<AdmissionRules, ServiceError> {
    let mut tx = db.begin().await?;
    sqlx::query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY").execute(&mut *tx).await?;
    let (revision, areas_revision): (i64, i64) = sqlx::query_as(
        "-- admission revisions
         SELECT number, areas FROM admission_revision",
    )
    .fetch_one(&mut *tx)
    .await?;
    let rows: Option<Vec<GeofenceRow>> = if areas_revision == known.areas_revision {
        None
    } else {
        let rows = sqlx::query_as(
            "-- areas
             SELECT id, name, priority, geometry, geohashes, service_type, time_zone FROM areas ORDER BY id",
        );
        Some(rows.fetch_all(&mut *tx).await?)
    };
    let limits: Vec<LimitsRow> = sqlx::query_as(
        "-- limits of areas
         SELECT * FROM area_limits",
    )
    .fetch_all(&mut *tx)
    .await?;
    let overrides: Vec<AreaOverride> = sqlx::query_as(
        "-- overrides of areas
         SELECT area_id, status, reason, expires_at, actor FROM area_overrides",
    )
    .fetch_all(&mut *tx)
    .await?;
    let flag = sqlx::query_as(
        "-- admission flag
         SELECT enabled, enabled_areas, enabled_channels, percentage, shadow_mode, version FROM admission_flag",
    )
    .fetch_one(&mut *tx)
    .await?;
    tx.commit().await?;
    let (geofence, unreadable) = match rows {
        Some(rows) => tokio::task::spawn_blocking(move || draw_areas(rows))
            .await
            .map_err(|error| ServiceError::Incomplete(error.to_string()))?,
        None => (known.geofence.clone(), known.unreadable.clone()),
    };
    let defaults = config.default_limits();
    let schedules = limits.iter().filter_map(|row| read_schedule(row, &geofence, config.time_zone)).collect();
    Ok(AdmissionRules {
        geofence,
        unreadable,
        flag,
        schedules,
        overrides: overrides.into_iter().map(|o| (o.area_id.clone(), o)).collect(),
        limits: limits.into_iter().map(|row| row.into_table_entry(&defaults)).collect(),
        defaults: Some(defaults),
        revision,
        areas_revision,
    })
}

/// Builds the geofence. An area that cannot be parsed is left out and returned by id; the other areas are used.
fn draw_areas(rows: Vec<GeofenceRow>) -> (Arc<Geofence>, Vec<AreaId>) {
    let (mut areas, mut unreadable) = (Vec::new(), Vec::new());
    for row in rows {
        let id = row.id.clone();
        match read_area(row) {
            Ok(area) => areas.push(area),
            Err(error) => {
                tracing::error!(
                    area.id = id.as_str(),
                    %error,
                    "An area cannot be read and is left out; import it again."
                );
                unreadable.push(id);
            }
        }
    }
    (Arc::new(Geofence::new(areas)), unreadable)
}

fn read_area(row: GeofenceRow) -> Result<Area, ImportError> {
    let polygons = row.geometry.map(|Json(json)| import::read_stored(json)).transpose()?;
    let time_zone = row.time_zone.and_then(|name| match name.parse::<AreaTimeZone>() {
        Ok(zone) => Some(zone),
        Err(error) => {
            tracing::error!(area.id = row.id.as_str(), %error, "An area's time zone is unknown; the installation's time zone is used.");
            None
        }
    });
    Ok(Area {
        id: row.id,
        name: row.name,
        priority: row.priority,
        polygons,
        geohashes: row.geohashes,
        service_types: row.service_type,
        time_zone,
    })
}

/// Parses the schedule of a row. A schedule that cannot be parsed is left out, and the area's usual threshold applies.
fn read_schedule(row: &LimitsRow, geofence: &Geofence, usual_zone: AreaTimeZone) -> Option<(AreaKey, LocalSchedule)> {
    let stored = row.schedule.clone()?;
    let entries = serde_json::from_value::<Vec<ScheduledThreshold>>(stored).map_err(|error| error.to_string());
    let schedule = entries.and_then(|entries| ThresholdSchedule::new(entries).map_err(|error| error.to_string()));
    match schedule {
        Ok(schedule) => {
            let zone = geofence.get(&row.area_id).and_then(|area| area.time_zone).unwrap_or(usual_zone);
            Some((AreaKey::new(&row.area_id, &row.service_type), LocalSchedule { zone, schedule }))
        }
        Err(error) => {
            tracing::error!(
                area.id = row.area_id.as_str(),
                service_type = row.service_type.as_str(),
                error,
                "A schedule of thresholds cannot be read and is left out; set it again."
            );
            None
        }
    }
}

impl LimitsRow {
    fn into_table_entry(self, defaults: &AreaLimits) -> (AreaKey, (AreaLimits, AreaDurations)) {
        let secs = |value: Option<i64>| value.and_then(|secs| u64::try_from(secs).ok()).map(Duration::from_secs);
        let levels = self
            .bypass_loyalty_levels
            .map(|levels| levels.iter().filter_map(|level| level.parse().ok()).collect::<Vec<LoyaltyLevel>>());
        let limits = AreaLimits {
            max_waiting: self.max_waiting_orders.unwrap_or(defaults.max_waiting),
            waiting_window: secs(self.waiting_timeout_sec).or(defaults.waiting_window),
            cooldown: secs(self.cooldown_period_sec).unwrap_or(defaults.cooldown),
            low_water_percentage: self.low_water_percentage.map_or(defaults.low_water_percentage, i64::from),
            busy_retry: secs(self.busy_retry_interval_sec).unwrap_or(defaults.busy_retry),
            bypass_enabled: self.bypass_enabled.unwrap_or(defaults.bypass_enabled),
            bypass_levels: levels.unwrap_or_else(|| defaults.bypass_levels.clone()),
            max_bypass_percentage: self.max_bypass_percentage.map_or(defaults.max_bypass_percentage, i64::from),
            max_scheduled_per_hour: self.max_scheduled_per_hour,
            enabled: self.enabled,
            priority: self.priority,
        };
        let durations = AreaDurations {
            attempt: secs(self.dispatch_timeout_sec),
            lifetime: secs(self.order_lifetime_sec),
            retry: secs(self.retry_interval_sec),
            busy_retry: secs(self.busy_retry_interval_sec),
        };
        (AreaKey { area: self.area_id, service_type: self.service_type }, (limits, durations))
    }
}
