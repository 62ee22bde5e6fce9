//! Counts of open orders and of refunds that are not started. The counts read page by page, so each statement is short.
//! The columns of open orders change at every step, so no index can count them, and every open order is read.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use foundation::db::Pool;
use model::{
    ids::{AreaId, AreaKey, ServiceType},
    order::OrderStatus,
};

/// Orders that one statement reads.
const PAGE: i64 = 2000;

/// Number of open orders in each situation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OrderCensus {
    /// Start of the count, on Postgres' clock.
    pub at: DateTime<Utc>,
    pub orders: u64,
    pub held: u64,
    /// Orders that are searching for a driver after their first attempt failed.
    pub retrying: u64,
    /// Orders whose partner is being polled for the job id.
    pub retrievals: u64,
    pub waiting: BTreeMap<AreaKey, WaitingOrders>,
    /// Contains only statuses that have orders.
    pub by_status: BTreeMap<OrderStatus, u64>,
}

/// Orders of an area that are searching for a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitingOrders {
    pub orders: i64,
    pub oldest: DateTime<Utc>,
}

#[derive(sqlx::FromRow)]
struct CensusGroup {
    area_id: Option<AreaId>,
    service_type: Option<ServiceType>,
    status: OrderStatus,
    orders: i64,
    oldest: DateTime<Utc>,
    held: i64,
    retrying: i64,
    retrievals: i64,
    last: String,
}

/// Counts all open orders. An order that changes during the count is counted in its old or new state.
pub async fn take_census(db: &Pool) -> Result<OrderCensus, sqlx::Error> {
    let windows = load_windows(db).await?;
    let mut census = OrderCensus { at: windows.at, ..OrderCensus::default() };
    let mut after = String::new();
    loop {
        let groups = count_page(db, &after, &windows).await?;
        let mut seen = 0;
        for group in groups {
            seen += group.orders;
            after.clone_from(&group.last);
            census.add_group(group);
        }
        if seen < PAGE {
            return Ok(census);
        }
    }
}

/// Areas and service types with a waiting window, as columns.
#[derive(Debug, Default)]
struct WaitingWindows {
    /// Postgres' time.
    at: DateTime<Utc>,
    areas: Vec<String>,
    service_types: Vec<String>,
    seconds: Vec<i64>,
}

/// Postgres' time with an area, a service type and its seconds, or with nulls.
type WindowRow = (DateTime<Utc>, Option<String>, Option<String>, Option<i64>);

async fn load_windows(db: &Pool) -> Result<WaitingWindows, sqlx::Error> {
    let rows: Vec<WindowRow> = sqlx::query_as(
        "-- windows of waiting orders
         SELECT n.now, l.area_id, l.service_type, l.waiting_timeout_sec
         FROM (SELECT dispatchq_now() AS now) n LEFT JOIN area_limits l ON l.waiting_timeout_sec IS NOT NULL",
    )
    .fetch_all(db)
    .await?;
    let mut windows = WaitingWindows::default();
    for (at, area, service_type, seconds) in rows {
        windows.at = at;
        windows.areas.extend(area);
        windows.service_types.extend(service_type);
        windows.seconds.extend(seconds);
    }
    Ok(windows)
}

async fn count_page(db: &Pool, after: &str, windows: &WaitingWindows) -> Result<Vec<CensusGroup>, sqlx::Error> {
    sqlx::query_as(include_str!("count_page.sql"))
        .bind(after)
        .bind(PAGE)
        .bind(&windows.areas)
        .bind(&windows.service_types)
        .bind(&windows.seconds)
        .fetch_all(db)
        .await
}

/// Refunds of one statement.
const REFUNDS_PAGE: i64 = 200;

#[derive(sqlx::FromRow)]
struct RefundsPage {
    refunds: i64,
    oldest: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
    last_at: Option<DateTime<Utc>>,
    last_id: Option<String>,
}

/// Returns the number of owed refunds that are not started, and the age of the oldest. A refund is due from the close
/// of its order, or from its payment if that was later.
pub async fn refunds_to_begin(db: &Pool) -> Result<(u64, Option<TimeDelta>), sqlx::Error> {
    let (mut total, mut oldest) = (0, None);
    let mut after: Option<(DateTime<Utc>, String)> = None;
    loop {
        let page: RefundsPage = sqlx::query_as(
            "-- count a page of refunds to begin
             WITH page AS MATERIALIZED (
                 SELECT id, closed_at, paid_at FROM orders
                 WHERE owes_refund AND closed_at IS NOT NULL AND status <> 'REFUND_PENDING'
                   AND ($1::timestamptz IS NULL OR (closed_at, id) > ($1, $2::text)) ORDER BY closed_at, id LIMIT $3)
             SELECT count(*) AS refunds, min(greatest(closed_at, paid_at)) AS oldest, (SELECT dispatchq_now()) AS now,
                    max(closed_at) AS last_at, (array_agg(id ORDER BY closed_at DESC, id DESC))[1] AS last_id
             FROM page",
        )
        .bind(after.as_ref().map(|(at, _)| at))
        .bind(after.as_ref().map(|(_, id)| id))
        .bind(REFUNDS_PAGE)
        .fetch_one(db)
        .await?;
        total += page.refunds.unsigned_abs();
        oldest = oldest.max(page.oldest.map(|due_at| page.now - due_at));
        match page.last_at.zip(page.last_id) {
            Some(last) if page.refunds == REFUNDS_PAGE => after = Some(last),
            _ => return Ok((total, oldest)),
        }
    }
}

impl OrderCensus {
    fn add_group(&mut self, group: CensusGroup) {
        self.orders += group.orders.unsigned_abs();
        self.held += group.held.unsigned_abs();
        self.retrying += group.retrying.unsigned_abs();
        self.retrievals += group.retrievals.unsigned_abs();
        *self.by_status.entry(group.status).or_default() += group.orders.unsigned_abs();
        let (Some(area), Some(service_type)) = (group.area_id, group.service_type) else { return };
        let counted = WaitingOrders { orders: 0, oldest: group.oldest };
        let waiting = self.waiting.entry(AreaKey { area, service_type }).or_insert(counted);
        waiting.orders += group.orders;
        waiting.oldest = waiting.oldest.min(group.oldest);
    }
}
