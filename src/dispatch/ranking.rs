//! Who is asked first: the nearest, of equally near the one who has been idle longest. Pure.

use chrono::{DateTime, Utc};
use geo::{Distance, Haversine, Point};

/// A free driver near the pickup.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct Candidate {
    pub driver_id: String,
    pub lat: f64,
    pub lng: f64,
    pub idle_since: DateTime<Utc>,
}

/// Driver ids with their distance in metres, best first; whoever is beyond `radius_m` is not asked.
pub fn rank(candidates: Vec<Candidate>, lat: f64, lng: f64, radius_m: f64) -> Vec<(String, f64)> {
    let pickup = Point::new(lng, lat);
    let mut near: Vec<_> = candidates
        .into_iter()
        .map(|c| (Haversine.distance(pickup, Point::new(c.lng, c.lat)).round(), c))
        .filter(|(distance_m, _)| *distance_m <= radius_m)
        .collect();
    // The id comes last, so that the order never depends on how rows happened to be read.
    near.sort_by(|(da, a), (db, b)| {
        da.total_cmp(db).then(a.idle_since.cmp(&b.idle_since)).then_with(|| a.driver_id.cmp(&b.driver_id))
    });
    near.into_iter().map(|(distance_m, c)| (c.driver_id, distance_m)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn driver(id: &str, lat: f64, idle_since: i64) -> Candidate {
        let idle_since = DateTime::from_timestamp(idle_since, 0).unwrap();
        Candidate { driver_id: id.to_owned(), lat, lng: 0.0, idle_since }
    }

    #[test]
    fn nearest_first_then_longest_idle_then_id() {
        let ranked = rank(
            vec![driver("far", 0.02, 0), driver("b", 0.01, 50), driver("a", 0.01, 50), driver("idle", 0.01, 10)],
            0.0,
            0.0,
            5_000.0,
        );
        let ids: Vec<_> = ranked.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(ids, ["idle", "a", "b", "far"]);
    }

    #[test]
    fn a_hundredth_of_a_degree_of_latitude_is_about_1112_m() {
        assert_eq!(rank(vec![driver("d", 0.01, 0)], 0.0, 0.0, 5_000.0), [("d".to_owned(), 1112.0)]);
    }

    #[test]
    fn beyond_the_radius_nobody_is_asked() {
        assert_eq!(rank(vec![driver("d", 0.01, 0)], 0.0, 0.0, 1_000.0), []);
    }
}
