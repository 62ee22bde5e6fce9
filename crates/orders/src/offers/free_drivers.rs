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
/// Maximum waiting orders read per cell and on the whole map, the oldest first. Orders beyond them are left to their
/// own searches.
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
            radius_m: policy.radius_m,
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

/// Searches drivers for all orders. Returns one result per search, in their order.
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
    sqlx::query_as(
        "-- free drivers of waiting orders
         WITH w AS MATERIALIZED (
             SELECT o.id, o.service_type, o.pickup_lat, o.pickup_lng, o.round, o.former_drivers, o.created_at,
                    t.radius_m, t.most_offers, t.cool_down_s,
                    round(o.pickup_lat * 5) AS row_no, round(o.pickup_lng * 5) AS column_no,
                    (t.radius_m + 1) / 111000 AS lat_span,
                    (t.radius_m + 1) / 111000 / greatest(cos(radians(o.pickup_lat)), 0.01) AS lng_span
             FROM unnest($1::text[], $2::float8[], $3::bigint[], $4::float8[])
                  AS t (id, radius_m, most_offers, cool_down_s)
             JOIN orders o ON o.id = t.id),
         stretches AS (
             SELECT service_type, row_no, column_no, max(most_offers) AS most_offers, max(cool_down_s) AS cool_down_s,
                    min(pickup_lat - lat_span) AS south, max(pickup_lat + lat_span) AS north,
                    min(pickup_lng - lng_span) AS west, max(pickup_lng + lng_span) AS east
             FROM w GROUP BY service_type, row_no, column_no),
         free AS MATERIALIZED (
             SELECT s.service_type, s.row_no, s.column_no, d.id, d.lat, d.lng
             FROM stretches s
             JOIN drivers d ON d.available AND s.service_type = ANY (d.service_types)
                           AND d.lat BETWEEN s.south AND s.north AND d.lng BETWEEN s.west AND s.east
             WHERE (SELECT count(*) FROM orders o
                    WHERE o.driver_id = d.id AND o.status IN ('DRIVER_ASSIGNED', 'PICKED_UP') AND o.partner IS NULL) = 0
               AND (SELECT count(*) FROM offers f WHERE f.driver_id = d.id AND f.state = 'offered') < s.most_offers
               AND (s.cool_down_s = 0
                    OR (SELECT max(f.responded_at) FROM offers f
                        WHERE f.driver_id = d.id AND f.state IN ('declined', 'expired'))
                       > dispatchq_now() - s.cool_down_s * interval '1 second' IS NOT TRUE))
         SELECT w.id AS order_id, w.created_at, n.id AS driver_id, n.distance_m
         FROM w CROSS JOIN LATERAL (
             SELECT f.id, dispatchq_distance_m(f.lat, f.lng, w.pickup_lat, w.pickup_lng) AS distance_m
             FROM free f
             WHERE f.service_type = w.service_type AND f.row_no = w.row_no AND f.column_no = w.column_no
               AND round(dispatchq_distance_m(f.lat, f.lng, w.pickup_lat, w.pickup_lng)) <= w.radius_m
               AND f.id <> ALL (w.former_drivers)
               AND NOT EXISTS (SELECT 1 FROM offers x WHERE x.order_id = w.id AND x.driver_id = f.id
                               AND (x.state = 'declined' OR x.round = w.round))
             ORDER BY distance_m, f.id LIMIT $5) n",
    )
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
    let rows: Vec<FreeDriverRow> = sqlx::query_as(
        "-- waiting orders of free drivers
         WITH p AS MATERIALIZED (
             SELECT t.* FROM unnest($2::text[], $3::float8[], $4::bigint[], $5::float8[])
                             AS t (service_type, radius_m, most_offers, cool_down_s)
             WHERE (SELECT o.id FROM orders o
                    WHERE o.service_type = t.service_type AND o.status = 'DISPATCHING' AND o.partner IS NULL
                    ORDER BY floor(o.pickup_lat * 20), floor(o.pickup_lng * 20), o.created_at, o.id LIMIT 1) IS NOT NULL),
         d AS MATERIALIZED (
             SELECT d.id, d.lat, d.lng, p.service_type, p.radius_m, (p.radius_m + 1) / 111000 AS lat_span,
                    (p.radius_m + 1) / 111000 / greatest(cos(radians(d.lat)), 0.01) AS lng_span,
                    (SELECT extract(epoch FROM max(x.responded_at) - dispatchq_now())::float8 + p.cool_down_s
                     FROM offers x
                     WHERE x.driver_id = d.id AND x.state IN ('declined', 'expired')
                       AND x.responded_at > dispatchq_now() - p.cool_down_s * interval '1 second') AS cools_for_s
             FROM p
             -- `IS NOT FALSE` prevents Postgres from scanning the index of all available drivers
             JOIN drivers d ON d.id = ANY ($1::text[]) AND d.available IS NOT FALSE AND p.service_type = ANY (d.service_types)
             WHERE (SELECT count(*) FROM orders o
                    WHERE o.driver_id = d.id AND o.status IN ('DRIVER_ASSIGNED', 'PICKED_UP') AND o.partner IS NULL) = 0
               AND (SELECT count(*) FROM offers x WHERE x.driver_id = d.id AND x.state = 'offered') < p.most_offers),
         f AS MATERIALIZED (
             SELECT d.*, (40 * lat_span + 1) * (40 * lng_span + 1) > $9 OR abs(lng) + lng_span > 180 AS is_wide FROM d),
         w AS MATERIALIZED (
             SELECT o.* FROM (SELECT DISTINCT f.service_type FROM f WHERE f.is_wide AND f.cools_for_s IS NULL) t
             CROSS JOIN LATERAL (
                 SELECT o.id, o.service_type, o.created_at, o.pickup_lat, o.pickup_lng, o.former_drivers, o.round, o.next_attempt_at
                 FROM orders o
                 WHERE o.service_type = t.service_type AND o.status = 'DISPATCHING' AND o.partner IS NULL
                   AND (o.next_attempt_at IS NOT NULL OR o.attempt_deadline <= dispatchq_now()) AND NOT o.held_for_review
                   AND (o.lifetime_waived OR o.lifetime_deadline > dispatchq_now())
                 -- uses the index of cells: the index by status also contains the orders of partners
                 ORDER BY o.created_at + interval '0', o.id LIMIT $8) o)
         SELECT f.id AS driver_id, f.cools_for_s, n.id AS order_id, n.created_at, n.distance_m
         FROM f LEFT JOIN LATERAL (
             (SELECT o.id, o.created_at, o.distance_m
              FROM generate_series(floor((f.lat - f.lat_span) * 20)::bigint, floor((f.lat + f.lat_span) * 20)::bigint) AS row_no
              CROSS JOIN generate_series(floor((f.lng - f.lng_span) * 20)::bigint, floor((f.lng + f.lng_span) * 20)::bigint) AS column_no
              CROSS JOIN LATERAL (
                  SELECT o.id, o.created_at, dispatchq_distance_m(f.lat, f.lng, o.pickup_lat, o.pickup_lng) AS distance_m
                  FROM (SELECT o.id, o.created_at, o.pickup_lat, o.pickup_lng, o.former_drivers, o.round, o.next_attempt_at FROM orders o
                        WHERE o.service_type = f.service_type AND o.status = 'DISPATCHING' AND o.partner IS NULL
                          AND floor(o.pickup_lat * 20) = row_no::float8 AND floor(o.pickup_lng * 20) = column_no::float8
                          AND (o.next_attempt_at IS NOT NULL OR o.attempt_deadline <= dispatchq_now()) AND NOT o.held_for_review
                          AND (o.lifetime_waived OR o.lifetime_deadline > dispatchq_now())
                        ORDER BY o.created_at, o.id LIMIT $7) o
                  WHERE o.pickup_lat BETWEEN f.lat - f.lat_span AND f.lat + f.lat_span
                    AND round(dispatchq_distance_m(f.lat, f.lng, o.pickup_lat, o.pickup_lng)) <= f.radius_m
                    AND f.id <> ALL (o.former_drivers)
                    AND (SELECT count(*) FROM offers x
                         WHERE x.order_id = o.id AND x.driver_id = f.id
                           AND (x.state = 'declined' OR x.round = o.round
                                OR (x.round = o.round - 1 AND o.next_attempt_at > dispatchq_now()))) = 0
                  ORDER BY o.created_at, o.id LIMIT $6) o
              WHERE f.cools_for_s IS NULL AND NOT f.is_wide)
             UNION ALL
             (SELECT o.id, o.created_at, dispatchq_distance_m(f.lat, f.lng, o.pickup_lat, o.pickup_lng) AS distance_m
             -- in order, so that the scan ends with the last order needed
             FROM (SELECT * FROM w WHERE f.is_wide AND f.cools_for_s IS NULL AND w.service_type = f.service_type
                   ORDER BY w.created_at, w.id LIMIT $8) o
             WHERE o.pickup_lat BETWEEN f.lat - f.lat_span AND f.lat + f.lat_span
               AND round(dispatchq_distance_m(f.lat, f.lng, o.pickup_lat, o.pickup_lng)) <= f.radius_m
               AND f.id <> ALL (o.former_drivers)
               AND (SELECT count(*) FROM offers x
                    WHERE x.order_id = o.id AND x.driver_id = f.id
                      AND (x.state = 'declined' OR x.round = o.round
                           OR (x.round = o.round - 1 AND o.next_attempt_at > dispatchq_now()))) = 0
              ORDER BY o.created_at, o.id LIMIT $6)
             ORDER BY created_at, id LIMIT $6) n ON true",
    )
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
