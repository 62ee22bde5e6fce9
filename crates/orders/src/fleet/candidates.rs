//! Drivers near a pickup, and whether each may get an offer.
//!
//! [`driver_index`] returns the drivers nearby; Postgres decides which may get an offer, and has their exact positions.
//! If a driver is taken between this read and the offer, the unique index on live offers prevents the offer, and the
//! next driver gets it.

use chrono::{DateTime, TimeDelta, Utc};
use jobs::OrderId;
use model::{
    ids::{DriverId, ServiceType},
    order::{Order, Snapshot},
    policy::DispatchPolicy,
    ranking::{DriverCandidate, DriverRanking, SearchCircle, rank_candidates},
};

use serde::Serialize;
use sqlx::types::Json;

use crate::{capability::Orders, fleet::driver_index};
use areas::admission::check;
use foundation::{
    batch::{BatchQueue, BatchSize},
    core::Core,
    db::{self, Pool, copy_error},
};
use queue::Outcome;

const SEARCHES: BatchSize = BatchSize { most: 100, lanes: 4, crowd: 25 };

/// Returns the ranked drivers for this order and its policy, or the outcome of the job if Postgres fails.
pub async fn rank_for_order(orders: &Orders, s: &Snapshot) -> Result<(DriverRanking, DispatchPolicy), Outcome> {
    let policy = orders.areas.policy_for_order(&s.order);
    let ranking = rank_drivers(&orders.core, &orders.candidates, s, &policy)
        .await
        .map_err(|e| db::database_failed(&*orders.core.rng, &e))?;
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
    let pickup = SearchCircle { centre: s.order.pickup(), radius_m: policy.radius_m };
    let candidates = search.load(CandidateQuery::new(s, policy, vec![driver.clone()])).await?;
    Ok(rank_candidates(candidates, pickup, policy.weights, s.now))
}

/// Ranks or excludes the drivers nearby. Reads the nearest drivers first. If too few of them may get an offer,
/// it also reads the nearest eligible drivers from Postgres.
pub async fn rank_drivers(
    core: &Core,
    search: &CandidateSearch,
    s: &Snapshot,
    policy: &DispatchPolicy,
) -> Result<DriverRanking, sqlx::Error> {
    let pickup = SearchCircle { centre: s.order.pickup(), radius_m: policy.radius_m };
    let near = driver_index::search_drivers(core, &s.order.service_type, pickup, policy.candidate_limit()).await?;
    let ranked = |candidates| rank_candidates(candidates, pickup, policy.weights, s.now);
    let ranking = ranked(search.load(CandidateQuery::new(s, policy, near.ids.clone())).await?);
    if near.is_all || ranking.ranked.len() >= usize::from(policy.ask_at_once) {
        return Ok(ranking);
    }
    let mut ids = near.ids;
    ids.extend(find_eligible(&core.db, &s.order, pickup, policy, warm_since(s, policy)).await?);
    Ok(ranked(search.load(CandidateQuery::new(s, policy, ids)).await?))
}

/// Drivers to rank or exclude for an order.
#[derive(Debug, Serialize)]
struct CandidateQuery {
    ids: Vec<DriverId>,
    service_type: ServiceType,
    order_id: OrderId,
    former_drivers: Vec<DriverId>,
    round: i32,
    offers_per_driver: u16,
    /// Start of the cool-down. `None` if there is none.
    warm_since: Option<DateTime<Utc>>,
}

impl CandidateQuery {
    fn new(s: &Snapshot, policy: &DispatchPolicy, ids: Vec<DriverId>) -> Self {
        Self {
            ids,
            service_type: s.order.service_type.clone(),
            order_id: s.order.id.clone(),
            former_drivers: s.order.former_drivers.clone(),
            round: s.order.round,
            offers_per_driver: policy.offers_per_driver,
            warm_since: warm_since(s, policy),
        }
    }
}

type CandidateResult = Result<Vec<DriverCandidate>, sqlx::Error>;

/// Batched lookups of the drivers near orders. Cheap to clone.
#[derive(Debug, Clone)]
pub struct CandidateSearch(BatchQueue<(), CandidateQuery, CandidateResult>);

impl CandidateSearch {
    /// Creates the search. `db` caches plans ([`CoreParts::batches`](foundation::core::CoreParts::batches)), because
    /// planning takes as long as execution.
    pub fn new(db: &Pool) -> Self {
        let db = db.clone();
        Self(BatchQueue::new("load candidates", SEARCHES, move |queries: Vec<CandidateQuery>| {
            let db = db.clone();
            async move {
                load_candidates(&db, &queries)
                    .await
                    .unwrap_or_else(|error| queries.iter().map(|_| Err(copy_error(&error))).collect())
            }
        }))
    }

    async fn load(&self, query: CandidateQuery) -> CandidateResult {
        if query.ids.is_empty() {
            return Ok(Vec::new());
        }
        self.0.submit_item([], query).await.map_err(|_| sqlx::Error::WorkerCrashed)?
    }
}

#[derive(Debug, sqlx::FromRow)]
struct CandidateRow {
    place: i64,
    #[sqlx(flatten)]
    candidate: DriverCandidate,
}

/// Returns, for each query, its drivers who serve the service type and are available, with the reason why some are
/// excluded.
///
/// The driver's last refusal is read with `max`, which reads one index entry. With `EXISTS` and the start of the
/// cool-down, Postgres would scan all offers of a small fleet, because it expects to find one early. The driver's
/// active orders are counted for the same reason: with `EXISTS` Postgres may scan all active orders if it expects few.
async fn load_candidates(db: &Pool, queries: &[CandidateQuery]) -> Result<Vec<CandidateResult>, sqlx::Error> {
    #[derive(Serialize)]
    struct PlacedQuery<'a> {
        place: usize,
        #[serde(flatten)]
        query: &'a CandidateQuery,
    }
    let placed: Vec<_> = queries.iter().enumerate().map(|(place, query)| PlacedQuery { place, query }).collect();
    let rows: Vec<CandidateRow> =
        sqlx::query_as(include_str!("load_candidates.sql")).bind(Json(placed)).fetch_all(db).await?;
    let mut found: Vec<CandidateResult> = queries.iter().map(|_| Ok(Vec::new())).collect();
    for CandidateRow { place, candidate } in rows {
        let of_query = usize::try_from(place).ok().and_then(|place| found.get_mut(place));
        if let Some(Ok(candidates)) = of_query {
            candidates.push(candidate);
        }
    }
    Ok(found)
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
