//! Rows of imported areas.

use chrono::{DateTime, Utc};
use model::{
    admission::schedule::AreaTimeZone,
    ids::{AreaId, ServiceType},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sqlx::types::Json;

use super::{ChangeAuthor, TableError, lock_admission, lock_area, record_change, require_version};
use crate::import::ImportedArea;
use foundation::db::{Connection, Pool};

/// An area without its geometry.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema, sqlx::FromRow)]
#[schema(as = Area)]
pub struct AreaRow {
    #[schema(value_type = String)]
    pub id: AreaId,
    /// Same as `id`, under the name that the requirement on server busy uses.
    #[schema(value_type = String)]
    pub area_id: AreaId,
    pub name: String,
    pub priority: i32,
    pub geohashes: Vec<String>,
    /// Same as `geohashes`, joined with commas, under the name that the requirement uses; null: the area has none.
    #[schema(required)]
    pub geohash: Option<String>,
    /// Outer ring of the first polygon, under the name that the requirement uses; null: the area has no polygon. The
    /// export contains all polygons.
    #[schema(required, value_type = Option<Vec<AreaCorner>>)]
    pub geofence: Option<Json<Vec<AreaCorner>>>,
    /// Service types that the area serves; empty: all.
    #[schema(value_type = Vec<String>)]
    pub service_type: Vec<ServiceType>,
    /// IANA time zone of the area's schedules; null: the configured time zone.
    #[schema(required)]
    pub time_zone: Option<String>,
    pub has_polygons: bool,
    pub version: i64,
    pub updated_at: DateTime<Utc>,
}

/// A corner of an area.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AreaCorner {
    pub latitude: f64,
    pub longitude: f64,
}

pub async fn list_areas(db: &Pool) -> Result<Vec<AreaRow>, sqlx::Error> {
    sqlx::query_as(
        "-- list areas
         SELECT id, id AS area_id, name, priority, geohashes, nullif(array_to_string(geohashes, ','), '') AS geohash,
                (SELECT jsonb_agg(jsonb_build_object('latitude', corner -> 1, 'longitude', corner -> 0))
                 FROM jsonb_array_elements(CASE geometry ->> 'type' WHEN 'Polygon' THEN geometry #> '{coordinates,0}'
                                           ELSE geometry #> '{coordinates,0,0}' END) corner) AS geofence,
                service_type, time_zone, geometry IS NOT NULL AS has_polygons, version, updated_at
         FROM areas ORDER BY id",
    )
    .fetch_all(db)
    .await
}

/// Returns an area and its geometry as GeoJSON. The geometry is `None` if the area has only geohashes.
pub async fn find_area(db: &Pool, area: &AreaId) -> Result<Option<(AreaRow, Option<Value>)>, sqlx::Error> {
    #[derive(sqlx::FromRow)]
    struct WithGeometry {
        #[sqlx(flatten)]
        area: AreaRow,
        geometry: Option<Value>,
    }
    let found: Option<WithGeometry> = sqlx::query_as(
        "-- find area
         SELECT id, id AS area_id, name, priority, geohashes, nullif(array_to_string(geohashes, ','), '') AS geohash,
                (SELECT jsonb_agg(jsonb_build_object('latitude', corner -> 1, 'longitude', corner -> 0))
                 FROM jsonb_array_elements(CASE geometry ->> 'type' WHEN 'Polygon' THEN geometry #> '{coordinates,0}'
                                           ELSE geometry #> '{coordinates,0,0}' END) corner) AS geofence,
                service_type, time_zone, geometry IS NOT NULL AS has_polygons, version, updated_at, geometry
         FROM areas WHERE id = $1",
    )
    .bind(area)
    .fetch_optional(db)
    .await?;
    Ok(found.map(|row| (row.area, row.geometry)))
}

#[derive(sqlx::FromRow)]
struct ExportRow {
    id: AreaId,
    name: String,
    priority: i32,
    geohashes: Vec<String>,
    service_type: Vec<ServiceType>,
    time_zone: Option<String>,
    geometry: Option<Value>,
}

/// Returns all areas as a FeatureCollection that `import_areas` accepts.
pub async fn export_areas(db: &Pool) -> Result<Value, sqlx::Error> {
    let rows: Vec<ExportRow> = sqlx::query_as(
        "-- export areas
         SELECT id, name, priority, geohashes, service_type, time_zone, geometry FROM areas ORDER BY id",
    )
    .fetch_all(db)
    .await?;
    let features: Vec<Value> = rows.into_iter().map(ExportRow::into_feature).collect();
    Ok(json!({ "type": "FeatureCollection", "features": features }))
}

impl ExportRow {
    fn into_feature(self) -> Value {
        let mut properties = Map::new();
        properties.insert("area_id".to_owned(), json!(self.id));
        properties.insert("name".to_owned(), json!(self.name));
        properties.insert("priority".to_owned(), json!(self.priority));
        for (name, value, is_said) in [
            ("geohashes", json!(self.geohashes), !self.geohashes.is_empty()),
            ("service_type", json!(self.service_type), !self.service_type.is_empty()),
            ("time_zone", json!(self.time_zone), self.time_zone.is_some()),
        ] {
            if is_said {
                properties.insert(name.to_owned(), value);
            }
        }
        json!({ "type": "Feature", "properties": properties, "geometry": self.geometry })
    }
}

/// Returns the version that all areas share. It increases when an area is added, changed or removed.
pub async fn areas_version(db: &Pool) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(
        "-- version of all areas
         SELECT areas FROM admission_revision",
    )
    .fetch_one(db)
    .await
}

/// Inserts or updates areas; with `replace`, also removes all other areas. `expected` is the shared version of all
/// areas that the author has seen. Returns the numbers of imported and removed areas.
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
             INSERT INTO areas AS a (id, name, priority, geometry, geohashes, service_type, time_zone)
             VALUES ($1, $2, $3, $4, $5, $6, $7)
             ON CONFLICT (id) DO UPDATE SET name = excluded.name, priority = excluded.priority,
                 geometry = excluded.geometry, geohashes = excluded.geohashes, service_type = excluded.service_type,
                 time_zone = excluded.time_zone, version = a.version + 1, updated_at = dispatchq_now()
             WHERE (a.name, a.priority, a.geometry, a.geohashes, a.service_type, a.time_zone)
                   IS DISTINCT FROM (excluded.name, excluded.priority, excluded.geometry, excluded.geohashes,
                                     excluded.service_type, excluded.time_zone)
             RETURNING to_jsonb(a)",
        )
        .bind(&area.id)
        .bind(&area.name)
        .bind(area.priority)
        .bind(geometry.as_ref().map(Json))
        .bind(&area.geohashes)
        .bind(&area.service_types)
        .bind(area.time_zone.map(AreaTimeZone::name))
        .fetch_optional(&mut *tx)
        .await?;
        // An unchanged area gets no audit entry.
        if let Some(Json(after)) = after {
            let before = before.map(|Json(row)| row);
            record_change(&mut tx, author, "area imported", Some(&area.id), before, Some(after)).await?;
        }
    }
    let mut removed = 0;
    if replace {
        let ids: Vec<&AreaId> = areas.iter().map(|a| &a.area.id).collect();
        let others: Vec<AreaId> = sqlx::query_scalar(
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

/// Removes an area. `expected` is the area's version that the author has seen.
pub async fn remove_area(
    db: &Pool,
    area: &AreaId,
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

/// Removes an area with its limits and its override. Their last values remain in the audit. Returns whether the area
/// existed.
async fn delete_area(tx: &mut Connection, area: &AreaId, author: ChangeAuthor<'_>) -> Result<bool, sqlx::Error> {
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
