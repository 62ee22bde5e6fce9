//! Drivers considered for an order, as pages show them.

use chrono::{DateTime, TimeDelta, Utc};
use model::ranking::{DriverRanking, ExclusionReason};

use crate::{
    catalogue::fill,
    reasons::describe_exclusion,
    shown::{Moment, describe_distance, describe_span},
};
use desk::explain::LatestRanking;

pub(super) struct RankedRow {
    pub(super) place: usize,
    pub(super) driver: String,
    pub(super) distance: String,
    pub(super) idle: String,
    pub(super) offers: i64,
    pub(super) score: String,
}

pub(super) struct ExcludedRow {
    pub(super) driver: String,
    pub(super) distance: String,
    pub(super) why: String,
    /// Whether the driver has an order, so that a dispatcher cannot assign another.
    pub(super) is_busy: bool,
}

/// Returns a number of minutes as a duration.
#[expect(clippy::cast_possible_truncation, reason = "minutes of a driver, far below the limit")]
fn minutes(count: f64) -> TimeDelta {
    TimeDelta::seconds((count * 60.0).round() as i64)
}

/// One search.
pub(super) struct RankingPart {
    pub(super) attempt: i32,
    pub(super) at: Moment,
    pub(super) ranked: Vec<RankedRow>,
    pub(super) excluded: Vec<ExcludedRow>,
}

impl RankingPart {
    pub(super) fn new(attempt: i32, at: DateTime<Utc>, ranking: DriverRanking) -> Self {
        let ranked = ranking.ranked.into_iter().enumerate().map(|(i, driver)| RankedRow {
            place: i + 1,
            driver: driver.driver_id.into_string(),
            distance: describe_distance(driver.distance_m),
            idle: describe_span(minutes(driver.idle_min)),
            offers: driver.live_offers,
            score: format!("{:.0}", driver.score),
        });
        let excluded = ranking.excluded.into_iter().map(|driver| ExcludedRow {
            distance: describe_distance(driver.distance_m),
            why: describe_exclusion(&driver),
            is_busy: driver.why == ExclusionReason::Busy,
            driver: driver.driver_id.into_string(),
        });
        Self { attempt, at: Moment(at), ranked: ranked.collect(), excluded: excluded.collect() }
    }

    /// Returns the drivers that could be asked, best first, each with a description, for a field with suggestions.
    pub(super) fn suggestions(&self) -> Vec<(String, String)> {
        let describe = |row: &RankedRow| fill!("order.idle", distance = row.distance, idle = row.idle);
        self.ranked.iter().map(|row| (row.driver.clone(), describe(row))).collect()
    }

    /// Returns the search of an earlier attempt.
    pub(super) fn of_attempt(made: LatestRanking) -> Self {
        Self::new(made.attempt_no, made.at, made.candidates)
    }
}
