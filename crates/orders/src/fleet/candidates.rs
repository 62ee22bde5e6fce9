//! Drivers near a pickup, and whether each may get an offer.
//!
//! [`driver_index`] returns the drivers nearby; Postgres decides which may get an offer, and has their exact positions.
//! If a driver is taken between this read and the offer, the unique index on live offers prevents the offer, and the
//! next driver gets it.

use model::{
    ids::DriverId,
    order::Snapshot,
    policy::{DispatchPolicy, Wave},
    ranking::{DriverRanking, SearchCircle, rank_candidates},
};

use crate::{
    capability::Orders,
    fleet::{
        candidate_search::{CandidateQuery, CandidateSearch, warm_since},
        driver_index,
    },
};
use areas::admission::check;
use foundation::core::Core;

/// Returns the ranked drivers for the next attempt of this order and its policy.
pub async fn rank_for_order(orders: &Orders, s: &Snapshot) -> Result<(DriverRanking, DispatchPolicy), sqlx::Error> {
    rank_from_wave(orders, s, 1).await
}

/// Returns the ranked drivers like [`rank_for_order`], for the next wave of the running attempt.
pub async fn rank_for_next_wave(orders: &Orders, s: &Snapshot) -> Result<(DriverRanking, DispatchPolicy), sqlx::Error> {
    rank_from_wave(orders, s, s.order.wave_no + 1).await
}

/// Ranks the drivers in the circle of this wave. If it has none, ranks those in the widest circle.
async fn rank_from_wave(
    orders: &Orders,
    s: &Snapshot,
    first: i32,
) -> Result<(DriverRanking, DispatchPolicy), sqlx::Error> {
    let policy = orders.areas.policy_for_order(&s.order);
    let narrow = policy.wave(first).filter(|wave| wave.radius_m < policy.radius_m());
    let mut ranking = DriverRanking::default();
    if let Some(wave) = narrow {
        ranking = rank_in_circle(&orders.core, &orders.candidates, s, &policy, *wave).await?;
    }
    if ranking.ranked.is_empty() {
        ranking = rank_drivers(&orders.core, &orders.candidates, s, &policy).await?;
    }
    if ranking.ranked.is_empty() {
        return Ok((ranking, check::policy_for_pause(&orders.areas, &s.order).await));
    }
    Ok((ranking, policy))
}

/// Ranks or excludes this driver only.
pub(super) async fn rank_driver(
    search: &CandidateSearch,
    s: &Snapshot,
    policy: &DispatchPolicy,
    driver: &DriverId,
) -> Result<DriverRanking, sqlx::Error> {
    let pickup = SearchCircle { centre: s.order.pickup(), radius_m: policy.radius_m() };
    let candidates = search.load(CandidateQuery::new(s, policy, vec![driver.clone()])).await?;
    Ok(rank_candidates(candidates, pickup, policy.weights, s.now))
}

/// Ranks or excludes the drivers in the widest circle of the policy.
pub async fn rank_drivers(
    core: &Core,
    search: &CandidateSearch,
    s: &Snapshot,
    policy: &DispatchPolicy,
) -> Result<DriverRanking, sqlx::Error> {
    let Some(widest) = policy.waves.last() else { return Ok(DriverRanking::default()) };
    rank_in_circle(core, search, s, policy, *widest).await
}

/// Ranks or excludes the drivers nearby. Reads the nearest drivers first. If too few of them may get an offer,
/// it also reads the nearest eligible drivers from Postgres.
async fn rank_in_circle(
    core: &Core,
    search: &CandidateSearch,
    s: &Snapshot,
    policy: &DispatchPolicy,
    wave: Wave,
) -> Result<DriverRanking, sqlx::Error> {
    let pickup = SearchCircle { centre: s.order.pickup(), radius_m: wave.radius_m };
    let near = driver_index::search_drivers(core, &s.order.service_type, pickup, policy.candidate_limit()).await?;
    let ranked = |candidates| rank_candidates(candidates, pickup, policy.weights, s.now);
    let ranking = ranked(search.load(CandidateQuery::new(s, policy, near.ids.clone())).await?);
    if near.is_all || ranking.ranked.len() >= usize::from(wave.ask) {
        return Ok(ranking);
    }
    let mut ids = near.ids;
    ids.extend(find_eligible(core, s, pickup, policy, wave).await?);
    Ok(ranked(search.load(CandidateQuery::new(s, policy, ids)).await?))
}

/// Returns the nearest eligible drivers, even if many ineligible ones are nearer. This case is rare and expensive, so
/// it does not use the connections that write orders.
async fn find_eligible(
    core: &Core,
    s: &Snapshot,
    pickup: SearchCircle,
    policy: &DispatchPolicy,
    wave: Wave,
) -> Result<Vec<DriverId>, sqlx::Error> {
    let order = &s.order;
    let (lat_span, lng_span) = driver_index::degree_spans(pickup);
    sqlx::query_scalar(include_str!("find_eligible.sql"))
        .bind(order.id.as_str())
        .bind(&order.service_type)
        .bind(pickup.centre.lat)
        .bind(pickup.centre.lng)
        .bind(lat_span)
        .bind(lng_span)
        .bind(order.round)
        .bind(i64::from(policy.candidates.max(wave.ask)))
        .bind(&order.former_drivers)
        .bind(i64::from(policy.offers_per_driver))
        .bind(warm_since(s, policy))
        .bind(order.has_details)
        .fetch_all(&core.db)
        .await
}
