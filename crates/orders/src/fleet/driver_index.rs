//! Index of drivers by position: one Redis GEO index per service type, with Postgres as fallback.
//!
//! The index is a hint like everything in Redis. It finds the drivers nearby. Their exact positions and eligibility are
//! read from Postgres, which alone orders positions by their time. If two positions arrive together, the index may keep
//! the older one until the driver moves or the index is refreshed.
//!
//! An order never ends because the index has no driver for it: Postgres is searched first. Each index has a marker key
//! with an expiry. While the marker is missing (Redis was flushed, or no process refreshed the index), Postgres is
//! searched, and the reconciler rebuilds the index.

use std::{collections::BTreeMap, time::Duration};

use model::{
    ids::{DriverId, LatLng, ServiceType},
    ranking::SearchCircle,
};
use queue::{Command, LuaScript};
use redis::cmd;

use crate::{capability::Orders, freed_drivers};
use foundation::{
    core::Core,
    db::{Pool, lock},
    error::ServiceError,
    loops::report_progress,
    redis_keys,
};

/// Metres per degree of latitude, rounded down so that a box contains its whole circle. `offers::free_drivers` uses the
/// same value.
const METRES_PER_DEGREE: f64 = 111_000.0;
/// Lifetime of the marker after a refresh. An older index is not trusted, because updates may have been lost while
/// Redis was unavailable.
const TRUSTED_MS: u64 = 120_000;
/// Remaining lifetime of a marker below which its index is refreshed.
const REFRESH_BELOW: Duration = Duration::from_secs(60);
const BATCH: usize = 1_000;
/// Expiry of an index that is being built.
const UNFINISHED_SECS: u64 = 60;
/// Expiry of an index, which is normally refreshed every minute. It removes the indexes of deleted service types.
const INDEX_SECS: u64 = 3_600;
/// Advisory lock id: an arbitrary number, the same in every process.
const LOCK: i64 = 0x6470_6e65_6172_6279;
/// Maximum latitude that Redis stores (EPSG:3857).
const MAX_LAT: f64 = 85.05;

/// Drivers nearby, the nearest first.
#[derive(Debug, Clone, PartialEq)]
pub struct NearDrivers {
    pub ids: Vec<DriverId>,
    /// Whether Postgres found no other driver within the radius.
    pub is_all: bool,
}

#[derive(Debug, Clone, sqlx::FromRow)]
pub struct DriverPlace {
    pub id: DriverId,
    pub service_types: Vec<ServiceType>,
    #[sqlx(flatten)]
    pub at: LatLng,
    pub available: bool,
}

/// Returns half the height and half the width, in degrees, of the box around the circle.
pub(super) fn degree_spans(pickup: SearchCircle) -> (f64, f64) {
    // Distances are compared in full metres.
    let lat_span = (pickup.radius_m + 1.0) / METRES_PER_DEGREE;
    // Meridians converge; near a pole every longitude is near.
    (lat_span, lat_span / pickup.centre.lat.to_radians().cos().max(0.01))
}

/// Returns at most `most` available drivers of a service type within the radius, the nearest first.
pub async fn search_drivers(
    core: &Core,
    service_type: &ServiceType,
    pickup: SearchCircle,
    most: usize,
) -> Result<NearDrivers, sqlx::Error> {
    if let Some(ids) = search_redis(core, service_type, pickup, most).await {
        return Ok(NearDrivers { ids, is_all: false });
    }
    let ids = search_postgres(&core.db, service_type, pickup, most).await?;
    Ok(NearDrivers { is_all: ids.len() < most, ids })
}

/// Searches the index. Returns `None` if it is missing, not trusted, or Redis does not respond.
async fn search_redis(
    core: &Core,
    service_type: &ServiceType,
    pickup: SearchCircle,
    most: usize,
) -> Option<Vec<DriverId>> {
    if pickup.centre.lat.abs() > MAX_LAT {
        return None;
    }
    let keys = [redis_keys::drivers_trusted(service_type), redis_keys::driver_places(service_type)];
    let mut search = SEARCH.call(&keys);
    search.arg(pickup.centre.lng).arg(pickup.centre.lat).arg(pickup.radius_m).arg(most);
    match core.query_optional::<Option<Vec<String>>>("nearby", &search).await {
        Ok(ids) => ids.map(|ids| ids.into_iter().map(DriverId::from).collect()),
        Err(error) => {
            tracing::debug!(%error, "The driver index could not be queried; searching Postgres.");
            None
        }
    }
}

async fn search_postgres(
    db: &Pool,
    service_type: &ServiceType,
    pickup: SearchCircle,
    most: usize,
) -> Result<Vec<DriverId>, sqlx::Error> {
    let (lat_span, lng_span) = degree_spans(pickup);
    sqlx::query_scalar(
        "-- drivers nearby
         SELECT id FROM drivers
         WHERE available AND $1 = ANY (service_types)
           AND lat BETWEEN $2 - $4 AND $2 + $4 AND lng BETWEEN $3 - $5 AND $3 + $5
         ORDER BY ((lat - $2) / $4) ^ 2 + ((lng - $3) / $5) ^ 2, id LIMIT $6",
    )
    .bind(service_type)
    .bind(pickup.centre.lat)
    .bind(pickup.centre.lng)
    .bind(lat_span)
    .bind(lng_span)
    .bind(i64::try_from(most).unwrap_or(i64::MAX))
    .fetch_all(db)
    .await
}

/// Updates a driver's position in the index, and has waiting orders near an available driver checked. If Redis fails,
/// the next refresh corrects the index.
pub async fn upsert_driver(core: &Core, place: &DriverPlace) {
    let freed = if place.available { std::slice::from_ref(&place.id) } else { &[] };
    // Run both at once, so that an unresponsive Redis delays the caller by one timeout only.
    tokio::join!(freed_drivers::record_freed(core, freed, Duration::ZERO), update_indexes(core, place));
}

async fn update_indexes(core: &Core, place: &DriverPlace) {
    for service_type in &place.service_types {
        let told: Result<i64, _> = core
            .query_optional("note driver", &add_places(&redis_keys::driver_places(service_type), INDEX_SECS, [place]))
            .await;
        if let Err(error) = told {
            tracing::debug!(driver.id = place.id.as_str(), %error, "The driver index could not be updated.");
            return;
        }
    }
}

/// Marks the indexes as not trusted until they are rebuilt. Called when many drivers have changed.
pub async fn invalidate_index(orders: &Orders) {
    for marker in markers(orders) {
        if let Err(error) = orders.core.store.run_command::<()>("distrust index", cmd("DEL").arg(marker)).await {
            tracing::debug!(%error, "The driver index could not be invalidated; it is used until it is refreshed.");
            return;
        }
    }
}

static SEARCH: LuaScript = LuaScript::new(include_str!("../scripts/search_index.lua"));
static PLACE: LuaScript = LuaScript::new(include_str!("../scripts/place_drivers.lua"));

static PUT: LuaScript = LuaScript::new(include_str!("../scripts/replace_index.lua"));

/// Returns the command that adds these drivers. If the first driver is unavailable or too near a pole, it removes that
/// driver instead.
fn add_places<'a>(index: &str, kept_secs: u64, places: impl IntoIterator<Item = &'a DriverPlace>) -> Command {
    let mut places = places.into_iter().peekable();
    if let Some(gone) = places.next_if(|p| !p.available || p.at.lat.abs() > MAX_LAT) {
        let mut command = cmd("ZREM");
        command.arg(index).arg(gone.id.as_str());
        return command.into();
    }
    let mut command = PLACE.call([index]);
    command.arg(kept_secs);
    for place in places {
        command.arg(place.at.lng).arg(place.at.lat).arg(place.id.as_str());
    }
    command
}

/// Rebuilds the indexes from Postgres if a marker is missing or expires soon, unless another process is rebuilding
/// them. Returns whether it did.
pub async fn rebuild_if_missing(orders: &Orders) -> Result<bool, ServiceError> {
    if are_all_trusted(orders).await? {
        return Ok(false);
    }
    Ok(lock::run_under_lock(&orders.core.upkeep, LOCK, rebuild_index(orders)).await?.is_some())
}

/// Returns the marker keys, one per service type.
fn markers(orders: &Orders) -> impl Iterator<Item = String> {
    orders.config.service_types.keys().map(redis_keys::drivers_trusted)
}

/// Returns whether every marker lives longer than [`REFRESH_BELOW`].
async fn are_all_trusted(orders: &Orders) -> Result<bool, ServiceError> {
    for marker in markers(orders) {
        let mut left = cmd("PTTL");
        left.arg(marker);
        let left_ms: i64 = orders.core.store.run_command("pttl", &left).await?;
        if !u128::try_from(left_ms).is_ok_and(|left| left > REFRESH_BELOW.as_millis()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Builds each index next to the old one and then replaces it. Updates in between are lost until the driver moves or
/// the next refresh, which is acceptable for a hint.
async fn rebuild_index(orders: &Orders) -> Result<(), ServiceError> {
    let places: Vec<DriverPlace> = sqlx::query_as(
        "-- places of drivers
         SELECT id, service_types, lat, lng, available FROM drivers WHERE available AND abs(lat) <= $1",
    )
    .bind(MAX_LAT)
    .fetch_all(&orders.core.db)
    .await?;
    // A service type without drivers gets an empty index, too.
    let mut by_type: BTreeMap<ServiceType, Vec<&DriverPlace>> =
        orders.config.service_types.keys().map(|name| (name.clone(), Vec::new())).collect();
    for place in &places {
        for service_type in &place.service_types {
            by_type.entry(service_type.clone()).or_default().push(place);
        }
    }
    for (service_type, places) in by_type {
        // The key belongs to this process and expires soon if the process dies.
        let unfinished = redis_keys::drivers_unfinished(&service_type);
        for batch in places.chunks(BATCH) {
            let batch = add_places(&unfinished, UNFINISHED_SECS, batch.iter().copied());
            orders.core.store.run_command::<()>("build index", &batch).await?;
            report_progress();
        }
        let index = redis_keys::driver_places(&service_type);
        let put: Command = if places.is_empty() {
            let mut remove = cmd("DEL");
            remove.arg(&index);
            remove.into()
        } else {
            let mut replace = PUT.call([&unfinished, &index]);
            replace.arg(INDEX_SECS);
            replace
        };
        orders.core.store.run_command::<()>("put index", &put).await?;
        vouch_for(&orders.core, &redis_keys::drivers_trusted(&service_type)).await?;
    }
    Ok(())
}

async fn vouch_for(core: &Core, marker: &str) -> Result<(), ServiceError> {
    let mut vouch = cmd("SET");
    vouch.arg(marker).arg("built").arg("PX").arg(TRUSTED_MS);
    Ok(core.store.run_command("vouch for index", &vouch).await?)
}
