//! Areas that are full: shapes, limits and the admission switch.

use areas::{
    admission::waiting::{self, SuspectMembers},
    import,
    table::{
        ChangeAuthor, flag, geofences,
        limits::{self, LimitsChange},
    },
};
use model::{
    actor::{Actor, ActorRole},
    admission::limits::AdmissionFlag,
};
use serde_json::json;

use crate::TestApp;

/// Author of all changes to areas in tests.
pub const AUTHOR: ChangeAuthor<'static> =
    ChangeAuthor { actor: &Actor::with_fixed_name(ActorRole::Operator, "test"), reason: Some("test") };

/// Returns two areas: Jakarta around every test's pickup, and Bogor south of it.
pub fn areas() -> String {
    let square = |id: &str, south: f64| {
        let (n, s, w, e) = (south + 0.2, south, 106.7, 107.0);
        json!({ "type": "Feature", "properties": { "area_id": id, "name": format!("Area {id}") },
                "geometry": { "type": "Polygon", "coordinates": [[[w, s], [e, s], [e, n], [w, n], [w, s]]] } })
    };
    json!({ "type": "FeatureCollection", "features": [square("JKT", -6.3), square("BGR", -6.6)] }).to_string()
}

/// Reloads the rules if they have changed.
pub async fn refresh(t: &TestApp) {
    t.app.areas.reload_if_changed().await.unwrap();
}

/// Sets the limits of an area for a service type.
pub async fn limit_for(t: &TestApp, service_type: &str, area: &str, change: LimitsChange) {
    let change = LimitsChange { service_type: service_type.into(), ..change };
    limits::set_limits(&t.app.core.db, &area.into(), &change, None, AUTHOR).await.unwrap();
    refresh(t).await;
}

/// Changes the admission switch.
pub async fn flag(t: &TestApp, change: impl FnOnce(&mut AdmissionFlag)) {
    let mut flag = flag::load_flag(&t.app.core.db).await.unwrap();
    change(&mut flag);
    flag::set_flag(&t.app.core.db, &flag, Some(flag.version), AUTHOR).await.unwrap();
    refresh(t).await;
}

/// Imports two areas that each admit `max_waiting_orders` waiting orders of this service type, and enables admission.
pub async fn full_for(t: &TestApp, service_type: &str, max_waiting_orders: i64) {
    let areas = import::parse(&areas()).unwrap();
    geofences::import_areas(&t.app.core.db, &areas, false, None, AUTHOR).await.unwrap();
    for area in ["JKT", "BGR"] {
        let change = LimitsChange {
            max_waiting_orders: Some(max_waiting_orders),
            cooldown_period_sec: Some(0),
            low_water_percentage: Some(100),
            ..LimitsChange::default()
        };
        limit_for(t, service_type, area, change).await;
    }
    flag(t, |flag| flag.enabled = true).await;
    waiting::repair_waiting_sets(&t.app.areas, &mut SuspectMembers::default()).await.unwrap();
}
