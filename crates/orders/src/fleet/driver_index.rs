//! Which drivers are near a place: a Redis GEO index per service type, and Postgres where Redis does not know.
//!
//! The index is a hint like everything in Redis. It says who is near, not where they are and not whether they may be
//! asked; both are read from Postgres, which alone orders fixes by their time: of two that arrive together the older may be the
//! last in the index, until the driver moves or the index is refreshed. No order ends because the index knows of no driver: then Postgres is searched
//! after all. A key with a time to live vouches for each index: while that is missing (Redis was flushed, or no process has refreshed the
//! index for a while) Postgres is searched, and the reconciler builds a new index.

use std::{collections::BTreeMap, time::Duration};

use model::{
    ids::{DriverId, LatLng, ServiceType},
    ranking::SearchCircle,
};
use redis::{Cmd, cmd};

use crate::{capability::Orders, freed_drivers};
use foundation::{
    core::Core,
    db::{Pool, lock},
    error::ServiceError,
    loops::report_progress,
    redis_keys,
};

/// Metres of one degree of latitude; rather too few, so that a box holds all of its circle. `offers::free_drivers` reckons the same.
const METRES_PER_DEGREE: f64 = 111_000.0;
/// An index that was not refreshed for so long is not believed: positions may have been missed while Redis was away.
const TRUSTED_MS: u64 = 120_000;
/// An index is refreshed when it is trusted for less than this.
const REFRESH_BELOW: Duration = Duration::from_secs(60);
/// Drivers per command.
const BATCH: usize = 1_000;
/// An index that is being built is forgotten after this.
const UNFINISHED_SECS: u64 = 60;
/// An index is refreshed every minute; one of a service type that is no more is forgotten after this.
const INDEX_SECS: u64 = 3_600;
/// Any number, the same in every replica.
const LOCK: i64 = 0x6470_6e65_6172_6279;
/// Redis places nothing nearer to the poles (EPSG:3857).
const MAX_LAT: f64 = 85.05;

/// Who is near, nearest first.
#[derive(Debug, Clone, PartialEq)]
pub struct NearDrivers {
    pub ids: Vec<DriverId>,
    /// Postgres says that no other driver is within the radius.
    pub is_all: bool,
}

/// A driver's place, for the index.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct DriverPlace {
    pub id: DriverId,
    pub service_types: Vec<ServiceType>,
    #[sqlx(flatten)]
    pub at: LatLng,
    pub available: bool,
}

/// Half the height and half the width, in degrees, of the box around everything within the radius.
pub(super) fn degree_spans(pickup: SearchCircle) -> (f64, f64) {
    // Distances are compared in full metres.
    let lat_span = (pickup.radius_m + 1.0) / METRES_PER_DEGREE;
    // Meridians converge; near a pole every longitude is near.
    (lat_span, lat_span / pickup.centre.lat.to_radians().cos().max(0.01))
}

/// The nearest available drivers of a service type within the radius, `most` at most.
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

/// `None`: Redis does not know.
async fn search_redis(
    core: &Core,
    service_type: &ServiceType,
    pickup: SearchCircle,
    most: usize,
) -> Option<Vec<DriverId>> {
    if pickup.centre.lat.abs() > MAX_LAT {
        return None;
    }
    let script = "if redis.call('EXISTS', KEYS[1]) == 0 then return false end
         return redis.call('GEOSEARCH', KEYS[2], 'FROMLONLAT', ARGV[1], ARGV[2], 'BYRADIUS', ARGV[3], 'm', 'ASC', 'COUNT', ARGV[4])";
    let mut search = cmd("EVAL");
    search
        .arg(script)
        .arg(2)
        .arg(redis_keys::drivers_trusted(service_type))
        .arg(redis_keys::driver_places(service_type));
    search.arg(pickup.centre.lng).arg(pickup.centre.lat).arg(pickup.radius_m).arg(most);
    match core.query_optional::<Option<Vec<String>>>("nearby", &search).await {
        Ok(ids) => ids.map(|ids| ids.into_iter().map(DriverId::from).collect()),
        Err(error) => {
            tracing::debug!(%error, "The index of drivers could not be asked; Postgres is searched.");
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

/// Notes where a driver is now, and has one who wants work looked at. If Redis cannot be told, the next refresh will.
pub async fn upsert_driver(core: &Core, place: &DriverPlace) {
    let freed = if place.available { std::slice::from_ref(&place.id) } else { &[] };
    // A Redis that hangs is waited for once.
    tokio::join!(freed_drivers::record_freed(core, freed), update_indexes(core, place));
}

async fn update_indexes(core: &Core, place: &DriverPlace) {
    for service_type in &place.service_types {
        let told: Result<i64, _> = core
            .query_optional("note driver", &add_places(&redis_keys::driver_places(service_type), INDEX_SECS, [place]))
            .await;
        if let Err(error) = told {
            tracing::debug!(driver.id = place.id.as_str(), %error, "The index of drivers was not told.");
            return;
        }
    }
}

/// Many drivers have changed: the index is not believed until it is rebuilt.
pub async fn invalidate_index(orders: &Orders) {
    for marker in markers(orders) {
        if let Err(error) = orders.core.store.run_command::<()>("distrust index", cmd("DEL").arg(marker)).await {
            tracing::debug!(%error, "The index of drivers is believed until it is refreshed.");
            return;
        }
    }
}

/// Adds drivers to an index, and has it expire: in one step, so that no index is left for good by a process that dies.
const PLACE: &str = "local added = redis.call('GEOADD', KEYS[1], unpack(ARGV, 2))
     redis.call('EXPIRE', KEYS[1], ARGV[1])
     return added";

/// Puts a finished index in the place of the old one.
const PUT: &str = "redis.call('EXPIRE', KEYS[1], ARGV[1])
     return redis.call('RENAME', KEYS[1], KEYS[2])";

/// A command that adds these drivers, or one that removes the only one.
fn add_places<'a>(index: &str, kept_secs: u64, places: impl IntoIterator<Item = &'a DriverPlace>) -> Cmd {
    let mut places = places.into_iter().peekable();
    if let Some(gone) = places.next_if(|p| !p.available || p.at.lat.abs() > MAX_LAT) {
        let mut command = cmd("ZREM");
        command.arg(index).arg(gone.id.as_str());
        return command;
    }
    let mut command = cmd("EVAL");
    command.arg(PLACE).arg(1).arg(index).arg(kept_secs);
    for place in places {
        command.arg(place.at.lng).arg(place.at.lat).arg(place.id.as_str());
    }
    command
}

/// Rebuilds the indexes from Postgres if they are not trusted for much longer, unless another process is at it. Returns
/// whether it did.
pub async fn rebuild_if_missing(orders: &Orders) -> Result<bool, ServiceError> {
    if are_all_trusted(orders).await? {
        return Ok(false);
    }
    Ok(lock::run_under_lock(&orders.core.upkeep, LOCK, rebuild_index(orders)).await?.is_some())
}

/// Returns the keys that vouch for the indexes, one for each service type.
fn markers(orders: &Orders) -> impl Iterator<Item = String> {
    orders.config.service_types.keys().map(redis_keys::drivers_trusted)
}

/// Returns whether the index of each service type stays trusted for longer than [`REFRESH_BELOW`].
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

/// Builds each index beside the old one and puts it in its place. What is noted meanwhile is lost until the driver moves
/// again or the next refresh comes: the index is a hint.
async fn rebuild_index(orders: &Orders) -> Result<(), ServiceError> {
    let places: Vec<DriverPlace> = sqlx::query_as(
        "-- places of drivers
         SELECT id, service_types, lat, lng, available FROM drivers WHERE available AND abs(lat) <= $1",
    )
    .bind(MAX_LAT)
    .fetch_all(&orders.core.db)
    .await?;
    // A service type without drivers has an index, too: an empty one.
    let mut by_type: BTreeMap<ServiceType, Vec<&DriverPlace>> =
        orders.config.service_types.keys().map(|name| (name.clone(), Vec::new())).collect();
    for place in &places {
        for service_type in &place.service_types {
            by_type.entry(service_type.clone()).or_default().push(place);
        }
    }
    for (service_type, places) in by_type {
        // This process's own, and gone soon if it dies.
        let unfinished = redis_keys::drivers_unfinished(&service_type);
        for batch in places.chunks(BATCH) {
            let batch = add_places(&unfinished, UNFINISHED_SECS, batch.iter().copied());
            orders.core.store.run_command::<()>("build index", &batch).await?;
            report_progress();
        }
        let index = redis_keys::driver_places(&service_type);
        let mut put = cmd("EVAL");
        if places.is_empty() {
            put = cmd("DEL");
            put.arg(&index);
        } else {
            put.arg(PUT).arg(2).arg(&unfinished).arg(&index).arg(INDEX_SECS);
        }
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
