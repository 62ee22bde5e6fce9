//! Ranks the drivers near a pickup, with reasons. Pure.
//!
//! A score is in metres, and the smallest score comes first. It is the distance to the pickup, minus a bonus for idle
//! time, plus a penalty for live offers. The values in a ranking therefore explain it.

use chrono::{DateTime, Utc};
use geo::{Distance, Haversine};
use serde::{Deserialize, Serialize};

use crate::ids::{DriverId, LatLng};

/// Maximum idle time that counts, in minutes. Without it, a driver who waits far away for a day would rank first
/// everywhere.
const LONGEST_IDLE_MIN: f64 = 60.0;
/// Maximum number of ranked and of excluded drivers stored to explain a ranking.
const EXPLAINED: usize = 20;

#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct DriverCandidate {
    pub driver_id: DriverId,
    #[sqlx(flatten)]
    pub place: LatLng,
    pub idle_since: DateTime<Utc>,
    /// Number of the driver's live offers of other orders.
    pub live_offers: i64,
    /// Reason for the exclusion; `None` if the driver may be asked.
    pub excluded: Option<ExclusionReason>,
    /// Labels that the order requires and the driver lacks; `None` if the driver has them all.
    pub missing: Option<Vec<String>>,
}

/// Reason why a driver near the pickup is not asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum ExclusionReason {
    /// The driver lacks a label that the order requires.
    LacksSkill,
    Busy,
    /// The driver has the maximum number of live offers.
    EnoughOffers,
    /// The driver had this order and lost it.
    HadIt,
    Declined,
    /// The driver was asked for this order in this round.
    Asked,
    /// The driver declined another offer recently, or let it expire.
    CoolingDown,
}

impl ExclusionReason {
    pub fn reason_text(self) -> &'static str {
        match self {
            Self::LacksSkill => "lacks a required label",
            Self::Busy => "has an active order",
            Self::EnoughOffers => "has the maximum number of offers",
            Self::HadIt => "had this order before",
            Self::Declined => "declined this order",
            Self::Asked => "was asked in this round",
            Self::CoolingDown => "has just declined or ignored an offer",
        }
    }
}

/// Weights that convert idle time and live offers into metres.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankingWeights {
    /// Bonus per idle minute, in metres.
    pub idle_minute_m: f64,
    /// Penalty per live offer of another order, in metres.
    pub live_offer_m: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankedDriver {
    pub driver_id: DriverId,
    pub distance_m: f64,
    pub idle_min: f64,
    pub live_offers: i64,
    pub score: f64,
}

/// A driver near the pickup who is not asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExcludedDriver {
    pub driver_id: DriverId,
    pub distance_m: f64,
    pub why: ExclusionReason,
    /// Labels that the order requires and the driver lacks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

impl ExcludedDriver {
    /// Returns the reason for people, with the missing labels.
    pub fn describe(&self) -> String {
        if self.missing.is_empty() {
            return self.why.reason_text().to_owned();
        }
        format!("lacks {}", self.missing.join(", "))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DriverRanking {
    /// Best first.
    pub ranked: Vec<RankedDriver>,
    /// Nearest first.
    pub excluded: Vec<ExcludedDriver>,
}

impl DriverRanking {
    /// Returns the part of the ranking that is stored to explain it.
    pub fn explanation_excerpt(&self) -> Self {
        let mut short = self.clone();
        short.ranked.truncate(EXPLAINED);
        short.excluded.truncate(EXPLAINED);
        short
    }
}

/// Pickup of an order and the search radius around it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchCircle {
    pub centre: LatLng,
    pub radius_m: f64,
}

/// Ranks the drivers within the radius. On equal scores, the driver with the longest idle time comes first.
pub fn rank_candidates(
    candidates: Vec<DriverCandidate>,
    pickup: SearchCircle,
    weights: RankingWeights,
    now: DateTime<Utc>,
) -> DriverRanking {
    let centre = pickup.centre.as_point();
    let (mut ranked, mut excluded) = (Vec::new(), Vec::new());
    for c in candidates {
        let distance_m = Haversine.distance(centre, c.place.as_point()).round();
        if distance_m > pickup.radius_m {
            continue;
        }
        if let Some(why) = c.excluded {
            let missing = c.missing.unwrap_or_default();
            excluded.push(ExcludedDriver { driver_id: c.driver_id, distance_m, why, missing });
            continue;
        }
        let idle_min = ((now - c.idle_since).as_seconds_f64() / 60.0).max(0.0).round();
        let nearer = idle_min.min(LONGEST_IDLE_MIN) * weights.idle_minute_m;
        let farther = c.live_offers as f64 * weights.live_offer_m;
        let score = distance_m - nearer + farther;
        let driver = RankedDriver { driver_id: c.driver_id, distance_m, idle_min, live_offers: c.live_offers, score };
        ranked.push((c.idle_since, driver));
    }
    // The id is the last criterion, so that the result never depends on the order of the rows.
    ranked.sort_by(|(idle_a, a), (idle_b, b)| {
        a.score.total_cmp(&b.score).then(idle_a.cmp(idle_b)).then_with(|| a.driver_id.cmp(&b.driver_id))
    });
    excluded.sort_by(|a, b| a.distance_m.total_cmp(&b.distance_m).then_with(|| a.driver_id.cmp(&b.driver_id)));
    DriverRanking { ranked: ranked.into_iter().map(|(_, driver)| driver).collect(), excluded }
}

#[cfg(any(test, feature = "fixtures"))]
pub mod fixture {
    use super::*;

    /// Drivers who may be asked, best first.
    pub fn ranking_of(drivers: &[&str]) -> DriverRanking {
        let ranked = drivers.iter().map(|driver| RankedDriver {
            driver_id: (*driver).into(),
            distance_m: 100.0,
            idle_min: 0.0,
            live_offers: 0,
            score: 100.0,
        });
        DriverRanking { ranked: ranked.collect(), excluded: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: RankingWeights = RankingWeights { idle_minute_m: 0.0, live_offer_m: 0.0 };

    fn driver(id: &str, lat: f64, idle_since: i64) -> DriverCandidate {
        let idle_since = DateTime::from_timestamp(idle_since, 0).unwrap();
        DriverCandidate {
            driver_id: id.into(),
            place: LatLng::new(lat, 0.0),
            idle_since,
            live_offers: 0,
            excluded: None,
            missing: None,
        }
    }

    fn ranked(candidates: Vec<DriverCandidate>, radius_m: f64, weights: RankingWeights) -> Vec<String> {
        let now = DateTime::from_timestamp(3600, 0).unwrap();
        let ranking =
            rank_candidates(candidates, SearchCircle { centre: LatLng::new(0.0, 0.0), radius_m }, weights, now);
        ranking.ranked.into_iter().map(|r| format!("{} {}", r.driver_id, r.score)).collect()
    }

    #[test]
    fn nearest_first_then_longest_idle_then_id() {
        let drivers =
            vec![driver("far", 0.02, 0), driver("b", 0.01, 50), driver("a", 0.01, 50), driver("idle", 0.01, 10)];
        assert_eq!(ranked(drivers, 5_000.0, PLAIN), ["idle 1112", "a 1112", "b 1112", "far 2224"]);
    }

    #[test]
    fn drivers_beyond_the_radius_are_ignored() {
        assert_eq!(ranked(vec![driver("d", 0.01, 0)], 1_000.0, PLAIN), Vec::<String>::new());
    }

    #[test]
    fn idle_time_and_load_count_in_metres() {
        let weights = RankingWeights { idle_minute_m: 20.0, live_offer_m: 500.0 };
        let loaded = DriverCandidate { live_offers: 2, ..driver("loaded", 0.0, 3600) };
        let drivers = vec![
            driver("near", 0.005, 3600),
            driver("idle", 0.01, 0),
            driver("idle for a week", 0.01, -604_800),
            loaded,
        ];
        let expected = ["idle for a week -88", "idle -88", "near 556", "loaded 1000"];
        assert_eq!(ranked(drivers, 5_000.0, weights), expected);
    }

    #[test]
    fn excluded_driver_is_listed_with_reason() {
        let busy = DriverCandidate { excluded: Some(ExclusionReason::Busy), ..driver("busy", 0.01, 0) };
        let far = DriverCandidate { excluded: Some(ExclusionReason::Busy), ..driver("far", 1.0, 0) };
        let now = DateTime::from_timestamp(3600, 0).unwrap();
        let ranking = rank_candidates(
            vec![busy, far],
            SearchCircle { centre: LatLng::new(0.0, 0.0), radius_m: 5_000.0 },
            PLAIN,
            now,
        );
        let busy = ExcludedDriver {
            driver_id: "busy".into(),
            distance_m: 1112.0,
            why: ExclusionReason::Busy,
            missing: Vec::new(),
        };
        assert_eq!((ranking.ranked, ranking.excluded), (vec![], vec![busy]));
    }
}
