//! Lookups of the drivers near orders, many in one statement.

use chrono::{DateTime, TimeDelta, Utc};
use jobs::OrderId;
use model::{
    ids::{DriverId, ServiceType},
    order::Snapshot,
    policy::DispatchPolicy,
    ranking::DriverCandidate,
};
use serde::Serialize;
use sqlx::types::Json;

use foundation::{
    batch::{BatchQueue, BatchSize},
    db::{DatabaseFailure, Pool, classify_error, copy_error},
};

const SEARCHES: BatchSize = BatchSize { most: 100, lanes: 4, crowd: 25 };

/// Drivers to rank or exclude for an order.
#[derive(Debug, Serialize)]
pub(super) struct CandidateQuery {
    ids: Vec<DriverId>,
    service_type: ServiceType,
    order_id: OrderId,
    former_drivers: Vec<DriverId>,
    round: i32,
    offers_per_driver: u16,
    /// Start of the cool-down. `None` if there is none.
    warm_since: Option<DateTime<Utc>>,
    /// Whether the order has contents, which may require labels.
    has_details: bool,
}

impl CandidateQuery {
    pub(super) fn new(s: &Snapshot, policy: &DispatchPolicy, ids: Vec<DriverId>) -> Self {
        Self {
            ids,
            service_type: s.order.service_type.clone(),
            order_id: s.order.id.clone(),
            former_drivers: s.order.former_drivers.clone(),
            round: s.order.round,
            offers_per_driver: policy.offers_per_driver,
            warm_since: warm_since(s, policy),
            has_details: s.order.has_details,
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
            async move { load_all(&db, &queries).await }
        }))
    }

    pub(super) async fn load(&self, query: CandidateQuery) -> CandidateResult {
        if query.ids.is_empty() {
            return Ok(Vec::new());
        }
        self.0.submit_item([], query).await.map_err(|_| sqlx::Error::WorkerCrashed)?
    }
}

/// Returns one result per query. A query that fails does not affect the others.
async fn load_all(db: &Pool, queries: &[CandidateQuery]) -> Vec<CandidateResult> {
    match load_candidates(db, queries).await {
        Ok(found) => found,
        Err(error) if queries.len() > 1 && classify_error(&error) == DatabaseFailure::Own => {
            let mut results = Vec::with_capacity(queries.len());
            for query in queries {
                let found = load_candidates(db, std::slice::from_ref(query)).await;
                results.push(found.and_then(|mut found| found.pop().unwrap_or_else(|| Ok(Vec::new()))));
            }
            results
        }
        Err(error) => queries.iter().map(|_| Err(copy_error(&error))).collect(),
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

/// Returns the start of the cool-down, or `None` if there is none. Drivers who declined an offer or let it expire after
/// this time are skipped. It is computed here so that an index can be used.
pub(super) fn warm_since(s: &Snapshot, policy: &DispatchPolicy) -> Option<DateTime<Utc>> {
    let cool_down = TimeDelta::from_std(policy.cool_down).ok().filter(|c| !c.is_zero())?;
    s.now.checked_sub_signed(cool_down)
}
