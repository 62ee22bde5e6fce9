//! The squares of `area_parts` hide no area: a search in them finds the same area as a search in all parts, and as the
//! process.

use model::ids::LatLng;
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use serde_json::{Value, json};
use test_support::TestApp;

const AREAS: usize = 120;
const PLACES: usize = 600;

/// Random shapes around a center, which may be at the date line or at a pole.
struct ShapeMaker {
    rng: StdRng,
    center: (f64, f64),
    /// In degrees.
    size: f64,
}

impl ShapeMaker {
    fn new(seed: u64) -> Self {
        Self { rng: StdRng::seed_from_u64(seed), center: (0.0, 0.0), size: 1.0 }
    }

    /// Moves to another center, and takes a size between 10 m and a third of the world.
    fn next_area(&mut self) {
        self.size = 10_f64.powf(self.rng.random_range(-4.0..2.1));
        let lng = *[-180.0, 180.0, 106.8, self.rng.random_range(-180.0..180.0)].choose(&mut self.rng).unwrap();
        let lat = *[-90.0, 90.0, -6.2, self.rng.random_range(-90.0..90.0)].choose(&mut self.rng).unwrap();
        let shift = self.rng.random_range(-1.0..1.0) * self.size;
        self.center = (lng + shift, lat + shift);
    }

    /// Returns a polygon with three to nine corners. Corners outside the world are moved to its border.
    fn ring(&mut self, size: f64) -> Vec<[f64; 2]> {
        let corners = self.rng.random_range(3..10);
        let mut ring: Vec<[f64; 2]> = (0..corners)
            .map(|n| {
                let angle =
                    (f64::from(n) + self.rng.random_range(0.0..0.9)) * std::f64::consts::TAU / f64::from(corners);
                let radius = size * self.rng.random_range(0.4..1.0);
                let (lng, lat) = (self.center.0 + radius * angle.cos(), self.center.1 + radius * angle.sin());
                [lng.clamp(-180.0, 180.0), lat.clamp(-90.0, 90.0)]
            })
            .collect();
        ring.push(ring[0]);
        ring
    }

    fn polygon(&mut self) -> Vec<Vec<[f64; 2]>> {
        let mut rings = vec![self.ring(self.size)];
        if self.rng.random_bool(0.3) {
            rings.push(self.ring(self.size * 0.3));
        }
        rings
    }

    /// Returns a polygon, or one on each side of the date line.
    fn geometry(&mut self) -> Value {
        if self.rng.random_bool(0.7) {
            return json!({ "type": "Polygon", "coordinates": self.polygon() });
        }
        let first = self.polygon();
        self.center.0 += if self.center.0 > 0.0 { -360.0 } else { 360.0 };
        json!({ "type": "MultiPolygon", "coordinates": [first, self.polygon()] })
    }

    fn geohashes(&mut self) -> Vec<String> {
        let letters = geohash::encode(geohash::Coord { x: self.place_in_world().lng, y: self.place_in_world().lat }, 7);
        vec![letters.unwrap()[..self.rng.random_range(1..8)].to_owned()]
    }

    fn place_in_world(&mut self) -> LatLng {
        LatLng::new(self.rng.random_range(-90.0..90.0), self.rng.random_range(-180.0..180.0))
    }

    /// Returns a place near the center, which may be outside the world.
    fn place_near_center(&mut self) -> LatLng {
        let mut shift = || self.rng.random_range(-1.2..1.2) * self.size;
        LatLng::new(self.center.1 + shift(), self.center.0 + shift())
    }
}

/// Stores random areas. Returns their corners and random places near them.
async fn store_areas(t: &TestApp, seed: u64) -> (Vec<LatLng>, Vec<LatLng>) {
    let mut shapes = ShapeMaker::new(seed);
    let (mut corners, mut places) = (Vec::new(), Vec::new());
    for n in 0..AREAS {
        shapes.next_area();
        let is_geohash = shapes.rng.random_bool(0.2);
        let geohashes = if is_geohash { shapes.geohashes() } else { Vec::new() };
        let geometry = if is_geohash { Value::Null } else { shapes.geometry() };
        if let Some(ring) = geometry.pointer("/coordinates/0").filter(|_| geometry["type"] == "Polygon") {
            let ring: Vec<Vec<[f64; 2]>> =
                serde_json::from_value(ring.clone()).map_or_else(|_| Vec::new(), |ring| vec![ring]);
            corners.extend(ring.into_iter().flatten().map(|[lng, lat]| LatLng::new(lat, lng)));
        }
        places.extend((0..PLACES / AREAS).map(|_| shapes.place_near_center()));
        sqlx::query("INSERT INTO areas (id, name, priority, geometry, geohashes) VALUES ($1, $1, $2, nullif($3, 'null'::jsonb), $4)")
            .bind(format!("A{n}"))
            .bind(shapes.rng.random_range(0..4))
            .bind(geometry)
            .bind(geohashes)
            .execute(&t.app.core.db)
            .await
            .unwrap();
    }
    places.extend((0..PLACES).map(|_| shapes.place_in_world()));
    places.retain(|place| place.is_on_earth());
    (corners, places)
}

/// Returns the area that the function finds at each place.
async fn find_areas(t: &TestApp, function: &str, places: &[LatLng]) -> Vec<Option<String>> {
    let statement = format!(
        "SELECT {function}(p.lat, p.lng, 'RIDE') FROM unnest($1::float8[], $2::float8[]) WITH ORDINALITY AS p(lat, lng, n)
         ORDER BY n"
    );
    sqlx::query_scalar(sqlx::AssertSqlSafe(statement))
        .bind(places.iter().map(|place| place.lat).collect::<Vec<_>>())
        .bind(places.iter().map(|place| place.lng).collect::<Vec<_>>())
        .fetch_all(&t.app.core.db)
        .await
        .unwrap()
}

/// Creates a copy of `dispatchq_area_at` that searches in all parts.
async fn create_full_search(t: &TestApp) {
    let definition = "SELECT pg_get_functiondef('dispatchq_area_at'::regproc)";
    let definition = t.texts(definition).await.remove(0);
    let full =
        definition.replace("dispatchq_area_at", "search_all_parts").replace("p.square = ANY (", "'{}'::bigint[] <> (");
    assert!(full.contains("'{}'::bigint[] <> (ARRAY("), "{full}");
    t.sql(&full).await;
}

#[tokio::test]
async fn squares_hide_no_area() {
    let t = TestApp::start().await;
    create_full_search(&t).await;
    let mut found = 0;
    for seed in 1..=6 {
        t.sql("DELETE FROM areas").await;
        let (corners, places) = store_areas(&t, seed).await;
        let borders = [-90.0, -45.3, 0.0, 12.7, 90.0]
            .into_iter()
            .flat_map(|lat| [-180.0, -179.9999999, 0.0, 179.9999999, 180.0].map(|lng| LatLng::new(lat, lng)));
        let all: Vec<LatLng> = places.iter().copied().chain(corners).chain(borders).collect();
        let in_squares = find_areas(&t, "dispatchq_area_at", &all).await;
        let in_all_parts = find_areas(&t, "search_all_parts", &all).await;
        for ((place, in_square), in_any) in all.iter().zip(&in_squares).zip(&in_all_parts) {
            assert_eq!(in_square, in_any, "seed {seed}, {place:?}");
        }
        t.app.areas.reload_if_changed().await.unwrap();
        let rules = t.app.areas.rules.get();
        // The process and Postgres may differ on the border itself, so corners are not compared.
        for (place, in_square) in places.iter().zip(&in_squares) {
            let in_process = rules.find_area(*place, &"RIDE".into()).map(|area| area.id.to_string());
            assert_eq!(&in_process, in_square, "seed {seed}, {place:?}");
            found += usize::from(in_process.is_some());
        }
        assert!(rules.unreadable.is_empty(), "seed {seed}: {:?}", rules.unreadable);
        let squares = "SELECT count(*) FROM (SELECT FROM area_parts GROUP BY area_id, bounds::text, outline::text HAVING count(*) > 16) many";
        assert_eq!(t.count(squares).await, 0, "a part touches at most sixteen squares");
    }
    assert!(found > 1000, "only {found} places are in an area");
}
