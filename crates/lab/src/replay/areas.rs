//! Areas that refuse orders while they are full.

use std::{path::Path, time::Duration};

use anyhow::{Context, bail};
use geo::{MultiPolygon, Orient, orient::Direction, unary_union};
use geojson::{Geometry, GeometryValue};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{
    admission::{GaugeWatch, knows_area},
    options::{AdmissionMode, ReplayOptions},
    zones::ZoneMap,
};
use crate::testbed::scrape::MetricsReader;
use app::App;
use areas::{
    import::{self, ImportedArea},
    table::{
        ChangeAuthor, flag, geofences,
        limits::{self, LimitsChange},
    },
};
use model::{
    actor::{Actor, ActorRole},
    admission::limits::AdmissionFlag,
};

const AUTHOR: ChangeAuthor<'static> =
    ChangeAuthor { actor: &Actor::with_fixed_name(ActorRole::Operator, "replay"), reason: Some("replay") };
/// Timeout for the processes to read changed rules. They read them within a second, but later on a frozen machine.
const RULES_WAIT: Duration = Duration::from_secs(30);
const RULES_POLL: Duration = Duration::from_millis(100);

/// Contents of a file of areas.
#[derive(Debug)]
pub(super) struct AreaFile {
    pub(super) areas: Vec<ImportedArea>,
    /// Zones that cannot be areas, with the reason.
    pub(super) left_out: Vec<String>,
}

/// Areas of the replayed orders.
#[derive(Debug)]
pub(super) struct OpenAreas {
    pub(super) gauges: GaugeWatch,
    pub(super) left_out: Vec<String>,
}

/// Reads areas, or zones as areas.
pub(super) fn read_file(path: &Path) -> anyhow::Result<AreaFile> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    match import::parse(&text) {
        Ok(areas) => Ok(AreaFile { areas, left_out: Vec::new() }),
        Err(error) => match ZoneMap::parse(&text, &path.display()) {
            Ok(zones) => Ok(zones_as_areas(&zones)),
            Err(_) => Err(error).with_context(|| format!("{} cannot be imported", path.display())),
        },
    }
}

fn zones_as_areas(zones: &ZoneMap) -> AreaFile {
    let mut file = AreaFile { areas: Vec::new(), left_out: Vec::new() };
    for (id, shape) in zones.shapes() {
        // Parts that touch or overlap are not a valid shape until they are joined.
        let area =
            zone_as_area(id, shape).or_else(|_| zone_as_area(id, &unary_union([&shape.orient(Direction::Default)])));
        match area {
            Ok(area) => file.areas.extend(area),
            Err(error) => file.left_out.push(format!("zone {id} cannot be an area: {error:#}")),
        }
    }
    file
}

fn zone_as_area(id: i64, shape: &MultiPolygon) -> anyhow::Result<Vec<ImportedArea>> {
    let feature = json!({
        "type": "Feature",
        "properties": { "area_id": format!("ZONE-{id}") },
        "geometry": Geometry::from(GeometryValue::from(shape)),
    });
    Ok(import::parse(&json!({ "type": "FeatureCollection", "features": [feature] }).to_string())?)
}

/// Imports the areas with their thresholds, and waits until the API knows them.
pub(super) async fn open_areas(app: &App, file: AreaFile, options: &ReplayOptions) -> anyhow::Result<OpenAreas> {
    let AreaFile { areas, left_out } = file;
    let Some(last) = areas.last() else { bail!("no area is left: {}", left_out.join("; ")) };
    // The flag is set first: a process that knows the limits of the last area then knows everything.
    let flag = flag::load_flag(&app.core.db).await?;
    let shadow_mode = options.admission_mode() == AdmissionMode::Shadow;
    flag::set_flag(&app.core.db, &AdmissionFlag { enabled: true, shadow_mode, ..flag }, None, AUTHOR).await?;
    geofences::import_areas(&app.core.db, &areas, false, None, AUTHOR).await?;
    let change = LimitsChange {
        service_type: options.strategy.service_type().into(),
        max_waiting_orders: Some(options.max_waiting_orders().into()),
        ..LimitsChange::default()
    };
    for area in &areas {
        limits::set_limits(&app.core.db, &area.area.id, &change, None, AUTHOR).await?;
    }
    let gauges = GaugeWatch::new(MetricsReader::new(&app.config.http.admin_bind)?, options.max_waiting_orders());
    let begun = Instant::now();
    while !gauges.scrape().await.is_ok_and(|shown| knows_area(&shown, &last.area.id)) {
        if begun.elapsed() > RULES_WAIT {
            bail!("the API does not know the areas {RULES_WAIT:?} after they were imported");
        }
        sleep(RULES_POLL).await;
    }
    Ok(OpenAreas { gauges, left_out })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_become_areas_with_joined_parts() {
        let square = |west: f64| {
            let (w, e) = (west, west + 1.0);
            json!([[[w, 0.0], [e, 0.0], [e, 1.0], [w, 1.0], [w, 0.0]]])
        };
        let zone = |id: u32, west: f64| {
            json!({ "type": "Feature", "properties": { "LocationID": id },
                    "geometry": { "type": "Polygon", "coordinates": square(west) } })
        };
        let zones = json!({ "type": "FeatureCollection", "features": [zone(7, 0.0), zone(7, 1.0), zone(4, 9.0)] });
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("zones.geojson");
        std::fs::write(&path, zones.to_string()).unwrap();
        let file = read_file(&path).unwrap();
        let ids: Vec<_> = file.areas.iter().map(|area| area.area.id.as_str()).collect();
        assert_eq!((ids, file.left_out), (vec!["ZONE-4", "ZONE-7"], Vec::new()));
        assert_eq!(file.areas[1].area.polygons.as_ref().map(|polygons| polygons.0.len()), Some(1));

        std::fs::write(&path, r#"{"type":"FeatureCollection","features":[]}"#).unwrap();
        assert!(format!("{:#}", read_file(&path).unwrap_err()).contains("no feature"));
    }
}
