//! Random fleets, compared with a second implementation of the rows.

use std::collections::BTreeMap;

use chrono::DateTime;
use geohash::Coord;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use sqlx::AssertSqlSafe;

use super::{count, end_minute};
use test_support::{TestApp, admission::full_for};

const FLEETS: u64 = 60;
/// Latitudes and longitudes around which drivers gather: a city, the border of two areas, the date line, a pole.
const CENTRES: [(f64, f64); 5] = [(-6.2088, 106.8456), (-6.4, 106.9), (0.0, 180.0), (12.0, -180.0), (90.0, 10.0)];
const SERVICES: [&str; 2] = ["RIDE", "RENT"];
const DUTIES: [&str; 3] = ["free", "busy", "off_duty"];

#[derive(Debug, Clone)]
struct Driver {
    lat: f64,
    lng: f64,
    service_types: Vec<&'static str>,
    duty: usize,
}

impl Driver {
    /// Returns the geohash of this length. The meridian 180 is that at -180. The library encodes the north pole as the
    /// south pole.
    fn cell(&self, letters: usize) -> String {
        let x = if self.lng >= 180.0 { self.lng - 360.0 } else { self.lng };
        geohash::encode(Coord { x, y: self.lat.min(89.999_999) }, letters).unwrap()
    }
}

fn random_fleet(rng: &mut StdRng) -> Vec<Driver> {
    let mut fleet = Vec::new();
    for _ in 0..rng.random_range(1..8) {
        let (lat, lng) = CENTRES[rng.random_range(0..CENTRES.len())];
        // From one cell to several geohash-5 cells.
        let spread = [0.001, 0.005, 0.02, 0.1][rng.random_range(0..4)];
        for _ in 0..rng.random_range(1..9) {
            let mut near = |centre: f64, most: f64| (centre + rng.random_range(-spread..spread)).clamp(-most, most);
            let (lat, lng) = (near(lat, 90.0), near(lng, 180.0));
            let service_types = match rng.random_range(0..4) {
                0 => vec![SERVICES[0]],
                1 => vec![SERVICES[1]],
                2 => SERVICES.to_vec(),
                // A table that was filled in SQL may repeat a type.
                _ => vec![SERVICES[0], SERVICES[0]],
            };
            fleet.push(Driver { lat, lng, service_types, duty: rng.random_range(0..DUTIES.len()) });
        }
    }
    fleet
}

/// Replaces the drivers and the orders that occupy them.
async fn hire(t: &TestApp, fleet: &[Driver]) {
    let rows: Vec<String> = (0..)
        .zip(fleet)
        .map(|(n, d)| {
            let (types, duty) = (d.service_types.join(","), DUTIES[d.duty]);
            format!("('{duty}-{n}', '{{{types}}}', {:?}, {:?}, {})", d.lat, d.lng, duty != "off_duty")
        })
        .collect();
    t.sql(&format!(
        "DELETE FROM orders; DELETE FROM drivers;
         INSERT INTO drivers (id, service_types, lat, lng, available) VALUES {};
         INSERT INTO orders (id, service_type, pickup_lat, pickup_lng, status, driver_id, lifetime_deadline, created_at, updated_at)
         SELECT 'O-' || id, 'RIDE', 0, 0, 'DRIVER_ASSIGNED', id, n, n, n
         FROM drivers, dispatchq_now() n WHERE id LIKE 'busy-%'",
        rows.join(", ")
    ))
    .await;
}

/// Service type, area and cell of a row.
type Place = (String, String, String);
type Counts = BTreeMap<Place, [i64; 3]>;

/// Returns the area at the centre of a geohash-5 cell; empty: none.
async fn area_of(t: &TestApp, service_type: &str, wide: &str) -> String {
    let (centre, ..) = geohash::decode(wide).unwrap();
    let query = format!("SELECT coalesce(dispatchq_area_at({:?}, {:?}, '{service_type}'), '')", centre.y, centre.x);
    t.texts(&query).await.remove(0)
}

/// Returns the rows that a fleet must have.
async fn expected_rows(t: &TestApp, fleet: &[Driver]) -> Counts {
    let mut rows = Counts::new();
    for service in SERVICES {
        let served: Vec<&Driver> = fleet.iter().filter(|d| d.service_types.contains(&service)).collect();
        let in_cell = |cell: &str| served.iter().filter(|d| d.cell(6) == cell).count();
        let left_in = |wide: &str| served.iter().filter(|d| d.cell(5) == wide && in_cell(&d.cell(6)) < 3).count();
        for driver in &served {
            let (cell, wide) = (driver.cell(6), driver.cell(5));
            let shown = match (in_cell(&cell), left_in(&wide)) {
                (3.., _) => cell,
                (_, 3..) => wide.clone(),
                _ => String::new(),
            };
            let place = (service.to_owned(), area_of(t, service, &wide).await, shown);
            rows.entry(place).or_default()[driver.duty] += 1;
        }
    }
    rows
}

async fn stored_rows(t: &TestApp, slot: i64) -> Counts {
    let minute = DateTime::from_timestamp(slot - 60, 0).unwrap().to_rfc3339();
    let query = format!(
        "SELECT service_type, area_id, cell, free::bigint, busy::bigint, off_duty::bigint FROM audit_supply WHERE minute = '{minute}'"
    );
    let rows: Vec<(String, String, String, i64, i64, i64)> =
        sqlx::query_as(AssertSqlSafe(query)).fetch_all(&t.app.core.db).await.unwrap();
    rows.into_iter().map(|(service, area, cell, free, busy, off)| ((service, area, cell), [free, busy, off])).collect()
}

#[tokio::test]
async fn random_fleets_have_no_cell_below_three_drivers() {
    let t = TestApp::start().await;
    full_for(&t, "RIDE", 50).await;
    let mut cells = 0;
    for seed in 0..FLEETS {
        let fleet = random_fleet(&mut StdRng::seed_from_u64(seed));
        hire(&t, &fleet).await;
        let slot = end_minute(&t).await;
        count(&t, slot).await;
        let rows = stored_rows(&t, slot).await;
        for ((service, area, cell), drivers) in &rows {
            let drivers: i64 = drivers.iter().sum();
            assert!(cell.is_empty() || drivers >= 3, "seed {seed}: {service} {area} {cell}: {drivers}");
            cells += usize::from(!cell.is_empty());
        }
        assert_eq!(rows, expected_rows(&t, &fleet).await, "seed {seed}");
    }
    assert!(cells > 100, "{cells} rows of cells");
}
