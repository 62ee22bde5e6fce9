//! Drivers near a pickup, and whether each may get an offer.
//!
//! [`driver_index`] returns the drivers nearby; Postgres decides which may get an offer, and has their exact positions.
//! If a driver is taken between this read and the offer, the unique index on live offers prevents the offer, and the
//! next driver gets it.

use chrono::{DateTime, TimeDelta, Utc};
use model::{
    ids::DriverId,
    order::{Order, Snapshot},
    policy::DispatchPolicy,
    ranking::{DriverCandidate, DriverRanking, SearchCircle, rank_candidates},
};

use crate::{capability::Orders, fleet::driver_index};
use areas::admission::check;
use foundation::{
    core::Core,
    db::{self, Pool},
};
use queue::Outcome;

/// Returns the ranked drivers for this order and its policy, or the outcome of the job if Postgres fails.
pub async fn rank_for_order(orders: &Orders, s: &Snapshot) -> Result<(DriverRanking, DispatchPolicy), Outcome> {
    let policy = orders.areas.policy_for_order(&s.order);
    let ranking = rank_drivers(&orders.core, &orders.core.batches, s, &policy)
        .await
        .map_err(|e| db::database_failed(&*orders.core.rng, &e))?;
    if ranking.ranked.is_empty() {
        return Ok((ranking, check::policy_for_pause(&orders.areas, &s.order).await));
    }
    Ok((ranking, policy))
}

/// Ranks or excludes this driver only.
pub(super) async fn rank_driver(
    core: &Core,
    s: &Snapshot,
    policy: &DispatchPolicy,
    driver: &DriverId,
) -> Result<DriverRanking, sqlx::Error> {
    let pickup = SearchCircle { centre: s.order.pickup(), radius_m: policy.radius_m };
    let warm = warm_since(s, policy);
    let candidates = load_candidates(&core.batches, &s.order, policy, warm, std::slice::from_ref(driver)).await?;
    Ok(rank_candidates(candidates, pickup, policy.weights, s.now))
}

/// Ranks or excludes the drivers nearby. Reads the nearest drivers first, on `db`. If too few of them may get an offer,
/// it also reads the nearest eligible drivers from Postgres.
pub async fn rank_drivers(
    core: &Core,
    db: &Pool,
    s: &Snapshot,
    policy: &DispatchPolicy,
) -> Result<DriverRanking, sqlx::Error> {
    let pickup = SearchCircle { centre: s.order.pickup(), radius_m: policy.radius_m };
    let near = driver_index::search_drivers(core, &s.order.service_type, pickup, policy.candidate_limit()).await?;
    let warm = warm_since(s, policy);
    let ranked = |candidates| rank_candidates(candidates, pickup, policy.weights, s.now);
    let ranking = ranked(load_candidates(db, &s.order, policy, warm, &near.ids).await?);
    if near.is_all || ranking.ranked.len() >= usize::from(policy.ask_at_once) {
        return Ok(ranking);
    }
    let mut ids = near.ids;
    ids.extend(find_eligible(&core.db, &s.order, pickup, policy, warm).await?);
    Ok(ranked(load_candidates(db, &s.order, policy, warm, &ids).await?))
}

/// Returns the drivers of `ids` that serve this service type and are available, with the reason why some are excluded.
/// Runs on connections that cache plans ([`CoreParts::batches`](foundation::core::CoreParts::batches)), because
/// planning takes as long as execution.
///
/// The driver's last refusal is read with `max`, which reads one index entry. With `EXISTS` and the start of the
/// cool-down, Postgres would scan all offers of a small fleet, because it expects to find one early. The driver's
/// active orders are counted for the same reason: with `EXISTS` Postgres may scan all active orders if it expects few.
async fn load_candidates(
    db: &Pool,
    order: &Order,
    policy: &DispatchPolicy,
    warm: Option<DateTime<Utc>>,
    ids: &[DriverId],
) -> Result<Vec<DriverCandidate>, sqlx::Error> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    sqlx::query_as(include_str!("load_candidates.sql"))
        .bind(ids)
        .bind(&order.service_type)
        .bind(order.id.as_str())
        .bind(&order.former_drivers)
        .bind(order.round)
        .bind(i64::from(policy.offers_per_driver))
        .bind(warm)
        .fetch_all(db)
        .await
}

/// Returns the nearest eligible drivers, even if many ineligible ones are nearer. This case is rare and expensive, so
/// it does not use the connections that write orders.
async fn find_eligible(
    db: &Pool,
    order: &Order,
    pickup: SearchCircle,
    policy: &DispatchPolicy,
    warm: Option<DateTime<Utc>>,
) -> Result<Vec<DriverId>, sqlx::Error> {
    let (lat_span, lng_span) = driver_index::degree_spans(pickup);
    sqlx::query_scalar(include_str!("find_eligible.sql"))
        .bind(order.id.as_str())
        .bind(&order.service_type)
        .bind(pickup.centre.lat)
        .bind(pickup.centre.lng)
        .bind(lat_span)
        .bind(lng_span)
        .bind(order.round)
        .bind(i64::from(policy.candidates.max(policy.ask_at_once)))
        .bind(&order.former_drivers)
        .bind(i64::from(policy.offers_per_driver))
        .bind(warm)
        .fetch_all(db)
        .await
}

/// Returns the start of the cool-down, or `None` if there is none. Drivers who declined an offer or let it expire after
/// this time are skipped. It is computed here so that an index can be used.
fn warm_since(s: &Snapshot, policy: &DispatchPolicy) -> Option<DateTime<Utc>> {
    let cool_down = TimeDelta::from_std(policy.cool_down).ok().filter(|c| !c.is_zero())?;
    s.now.checked_sub_signed(cool_down)
}
