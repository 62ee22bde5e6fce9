//! Matching of free drivers and waiting orders.
//!
//! There are two directions: [`FreeDriverSearch`] for orders whose next search is due, in batches; `orders_near` for
//! drivers who may be free again. Both results are hints. The offer itself is made on the row's version and under the
//! driver's lock.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use jobs::OrderId;
use model::{
    fleet::deal::{OpenPair, deal_drivers},
    ids::{DriverId, ServiceType},
    policy::DispatchPolicy,
};

use foundation::{
    batch::{BatchQueue, BatchSize},
    db::{Pool, copy_error},
};

const SEARCHES: BatchSize = BatchSize { most: 100, lanes: 2, crowd: 25 };

/// Orders read per free driver in addition to those that other drivers may take, in case some cannot be written.
const SPARE_ORDERS: i64 = 3;
/// Maximum map cells that are searched one by one. A cell is a twentieth of a degree wide and high (index
/// orders_waiting_by_place), so this is a radius of 27 km near the equator. For larger circles all waiting orders of
/// the service type are read once.
const MOST_CELLS: f64 = 144.0;
/// Maximum number of waiting orders that are read per cell and on the whole map, oldest first. Later orders get drivers
/// only from their own searches.
const MOST_OF_CELL: i64 = 300;
const MOST_OF_MAP: i64 = 3_000;

/// Search parameters of a service type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchTerms {
    pub radius_m: f64,
    pub most_offers: i64,
    /// Seconds without offers after a declined or expired offer.
    pub cool_down_s: f64,
}

impl From<&DispatchPolicy> for SearchTerms {
    fn from(policy: &DispatchPolicy) -> Self {
        Self {
            radius_m: policy.radius_m(),
            most_offers: i64::from(policy.offers_per_driver),
            cool_down_s: policy.cool_down.as_secs_f64(),
        }
    }
}

type WaitingSearch = (OrderId, SearchTerms);
type SearchResult = Result<bool, sqlx::Error>;

/// Batched searches for waiting orders. Cheap to clone.
#[derive(Debug, Clone)]
pub struct FreeDriverSearch(BatchQueue<(), WaitingSearch, SearchResult>);

impl FreeDriverSearch {
    pub fn new(db: &Pool) -> Self {
        let db = db.clone();
        Self(BatchQueue::new("search free drivers", SEARCHES, move |searches: Vec<WaitingSearch>| {
            let db = db.clone();
            async move { search_all(&db, &searches).await }
        }))
    }

    /// Returns whether a driver may get an offer for this order. In a batch the oldest orders come first: each driver
    /// counts for one order only.
    pub async fn has_driver(&self, order: &OrderId, terms: SearchTerms) -> Result<bool, sqlx::Error> {
        self.0.submit_item([], (order.clone(), terms)).await.map_err(|_| sqlx::Error::WorkerCrashed)?
    }
}

/// Searches for drivers for all these orders at once. Returns one result per search, in the order of `searches`.
async fn search_all(db: &Pool, searches: &[WaitingSearch]) -> Vec<SearchResult> {
    match drivers_near(db, searches).await {
        Ok(pairs) => {
            let dealt: HashSet<OrderId> = deal_drivers(pairs).into_iter().map(|pair| pair.order_id).collect();
            searches.iter().map(|(order, _)| Ok(dealt.contains(order))).collect()
        }
        Err(error) => searches.iter().map(|_| Err(copy_error(&error))).collect(),
    }
}

/// Returns the free drivers near each of these orders, at most as many per order as there are orders. Orders in the
/// same square of about 20 by 20 km share one search of its drivers.
async fn drivers_near(db: &Pool, searches: &[WaitingSearch]) -> Result<Vec<OpenPair>, sqlx::Error> {
    let ids: Vec<&str> = searches.iter().map(|(order, _)| order.as_str()).collect();
    let terms = || searches.iter().map(|(_, terms)| terms);
    sqlx::query_as(include_str!("drivers_near.sql"))
        .bind(ids)
        .bind(terms().map(|terms| terms.radius_m).collect::<Vec<_>>())
        .bind(terms().map(|terms| terms.most_offers).collect::<Vec<_>>())
        .bind(terms().map(|terms| terms.cool_down_s).collect::<Vec<_>>())
        .bind(i64::try_from(searches.len()).unwrap_or(i64::MAX))
        .fetch_all(db)
        .await
}

/// Waiting orders near drivers who may be free again.
#[derive(Debug, Default)]
pub(crate) struct OrdersNear {
    /// The oldest orders for each driver: as many as there are drivers, and a few more.
    pub(crate) pairs: Vec<OpenPair>,
    /// Drivers who are free but in their cool-down, with the remaining seconds.
    pub(crate) cooling: Vec<(DriverId, f64)>,
}

#[derive(Debug, sqlx::FromRow)]
struct FreeDriverRow {
    driver_id: DriverId,
    cools_for_s: Option<f64>,
    order_id: Option<String>,
    created_at: Option<DateTime<Utc>>,
    distance_m: Option<f64>,
}

impl FreeDriverRow {
    fn to_pair(&self) -> Option<OpenPair> {
        Some(OpenPair {
            order_id: self.order_id.as_ref()?.parse().ok()?,
            created_at: self.created_at?,
            driver_id: self.driver_id.clone(),
            distance_m: self.distance_m?,
        })
    }
}

/// Returns the waiting orders near each free driver in `drivers`. It includes orders whose own search is due or
/// running: that search may have run before the driver was free. For the same reason it includes orders whose attempt
/// is over. If an order was offered to a driver just before its pause, it is not offered to that driver again until the
/// pause is over.
///
/// The cost does not grow with the number of waiting orders. Each driver's search ends with the required number of
/// orders, or with the oldest orders of each map cell that the driver's circle touches. A wide circle touches too many
/// cells. For wide circles all waiting orders of the service type are read once, and each driver's search goes through
/// the oldest of them.
///
/// The statement is long, and planning it takes twice as long as running it. Its plan must be cached
/// (`db::batch_pool`).
pub(crate) async fn orders_near(
    db: &Pool,
    drivers: &[DriverId],
    terms: &[(ServiceType, SearchTerms)],
) -> Result<OrdersNear, sqlx::Error> {
    let values = || terms.iter().map(|(_, terms)| terms);
    let rows: Vec<FreeDriverRow> = sqlx::query_as(include_str!("orders_near.sql"))
        .bind(drivers)
        .bind(terms.iter().map(|(service_type, _)| service_type.as_ref()).collect::<Vec<&str>>())
        .bind(values().map(|terms| terms.radius_m).collect::<Vec<_>>())
        .bind(values().map(|terms| terms.most_offers).collect::<Vec<_>>())
        .bind(values().map(|terms| terms.cool_down_s).collect::<Vec<_>>())
        .bind(i64::try_from(drivers.len()).unwrap_or(i64::MAX).saturating_add(SPARE_ORDERS))
        .bind(MOST_OF_CELL)
        .bind(MOST_OF_MAP)
        .bind(MOST_CELLS)
        .fetch_all(db)
        .await?;
    let cooling = rows.iter().filter_map(|row| Some((row.driver_id.clone(), row.cools_for_s?))).collect();
    Ok(OrdersNear { pairs: rows.iter().filter_map(FreeDriverRow::to_pair).collect(), cooling })
}
