//! Lists of orders for staff: filters, pages, and the time range for closed orders.
//!
//! Open orders are few and are read through partial indexes. Closed orders number in the millions, so they are read by
//! an id or by a range of creation times. Lists use the connections for readers, and their statements have a short
//! timeout.

use std::{cmp::Reverse, collections::BTreeMap, fmt, str::FromStr, sync::LazyLock, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use jobs::OrderId;
use model::{
    ids::{AreaId, DriverId, ServiceType},
    order::{Order, OrderStatus, RefundProgress},
};
use sqlx::{AssertSqlSafe, Postgres, postgres::PgArguments, query::QueryAs, types::Json};

use crate::capability::Orders;
use foundation::db::{self, Connection, Pool, Transaction};
use settings::Config;

/// Age up to which closed orders are searched if no time range is given.
pub const CLOSED_WITHIN: TimeDelta = TimeDelta::hours(24);
/// Maximum time range without an id.
pub const LONGEST_TIME: TimeDelta = TimeDelta::days(31);
/// Timeout for each statement of a search.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum orders for one id, per kind of id; the newest.
const MOST_NAMED: i64 = 1000;

/// Filter for orders, listed from the newest. `None` matches every order.
#[derive(Debug, Clone, Default)]
pub struct OrderSearch {
    pub status: Option<OrderStatus>,
    pub area: Option<AreaId>,
    pub service_type: Option<ServiceType>,
    pub driver: Option<DriverId>,
    pub customer: Option<String>,
    pub owner: Option<String>,
    /// True: include closed orders. False: open orders only. `None`: include closed orders only if another filter
    /// requires them.
    pub closed: Option<bool>,
    /// Whether the order is under review.
    pub held: Option<bool>,
    /// Earliest creation time, inclusive.
    pub from: Option<DateTime<Utc>>,
    /// Latest creation time, exclusive.
    pub to: Option<DateTime<Utc>>,
    /// Id of an order, a job or booking at a partner, a customer or a driver.
    pub any_id: Option<String>,
    /// Values that the order's metadata must have, all of them.
    pub metadata: BTreeMap<String, String>,
}

/// Closed orders that a search includes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClosedOrders {
    /// No closed orders.
    None,
    /// All orders with the given id.
    All,
    /// Orders created in this time range. The range also applies to open orders.
    Within { from: DateTime<Utc>, to: Option<DateTime<Utc>> },
}

#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    #[error("closed orders of at most 31 days are listed at once: name 'from' and 'to', or an id")]
    TooLong,
    #[error("the orders of this time could not be searched within 2 s: name a shorter time, or an id")]
    TooSlow,
    #[error(transparent)]
    Database(sqlx::Error),
}

impl From<sqlx::Error> for SearchError {
    fn from(error: sqlx::Error) -> Self {
        const QUERY_CANCELED: &str = "57014";
        let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
        if code.is_some_and(|code| code == QUERY_CANCELED) { Self::TooSlow } else { Self::Database(error) }
    }
}

impl OrderSearch {
    /// Returns the closed orders that the search includes, at the time `now`.
    pub fn closed_orders(&self, now: DateTime<Utc>) -> Result<ClosedOrders, SearchError> {
        let bears_id = self.driver.is_some()
            || self.customer.is_some()
            || self.any_id.is_some()
            || self.owner.is_some()
            || !self.metadata.is_empty();
        let closed = match (self.from, self.to) {
            (Some(from), to) => ClosedOrders::Within { from, to },
            (None, Some(to)) => {
                let from = to.checked_sub_signed(CLOSED_WITHIN).unwrap_or(to);
                ClosedOrders::Within { from, to: Some(to) }
            }
            (None, None) if self.is_about_open_orders() => ClosedOrders::None,
            (None, None) if bears_id => ClosedOrders::All,
            (None, None) if self.closed == Some(true) => ClosedOrders::Within { from: now - LONGEST_TIME, to: None },
            (None, None) if self.status.is_some_and(OrderStatus::is_closed) => {
                ClosedOrders::Within { from: now - CLOSED_WITHIN, to: None }
            }
            (None, None) => ClosedOrders::None,
        };
        match closed {
            ClosedOrders::Within { from, to } if !bears_id && to.unwrap_or(now) - from > LONGEST_TIME => {
                Err(SearchError::TooLong)
            }
            closed => Ok(closed),
        }
    }

    /// Returns whether no closed order can match.
    fn is_about_open_orders(&self) -> bool {
        match self.closed {
            Some(true) => self.held == Some(true) || self.status.is_some_and(|status| !status.is_closed()),
            Some(false) => true,
            None => false,
        }
    }
}

/// End of the year 9999.
const LAST_MS: i64 = 253_402_300_799_999;

/// Position in a list by time, after this row. Text form: `ms.id`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimedPlace {
    /// Time in whole milliseconds, as in the rows.
    pub at: DateTime<Utc>,
    pub id: OrderId,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a cursor: expected the one from the previous page")]
pub struct InvalidTimedPlace(String);

impl fmt::Display for TimedPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.at.timestamp_millis(), self.id)
    }
}

impl FromStr for TimedPlace {
    type Err = InvalidTimedPlace;

    fn from_str(text: &str) -> Result<Self, InvalidTimedPlace> {
        let place = text.split_once('.').and_then(|(ms, id)| {
            let ms: i64 = ms.parse().ok()?;
            let at = DateTime::from_timestamp_millis(ms).filter(|_| (0..=LAST_MS).contains(&ms))?;
            Some(Self { at, id: id.parse().ok()? })
        });
        place.ok_or_else(|| InvalidTimedPlace(text.to_owned()))
    }
}

#[derive(Debug, Clone)]
pub struct FoundOrders {
    pub orders: Vec<Order>,
    pub closed: ClosedOrders,
    /// Time of the search on Postgres' clock.
    pub now: DateTime<Utc>,
}

/// Maximum orders that a count includes; the newest.
pub const MOST_COUNTED: i64 = 1000;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OrderCounts {
    /// Counts by status. Statuses without orders are omitted.
    pub by_status: Vec<(OrderStatus, i64)>,
    /// Whether more than [`MOST_COUNTED`] orders match. Then the newest `MOST_COUNTED + 1` are counted.
    pub is_cut: bool,
}

/// Returns the matching orders after `after`, the newest first. Always uses the connections for readers.
pub async fn search_orders(
    orders: &Orders,
    search: &OrderSearch,
    after: Option<&TimedPlace>,
    limit: u32,
) -> Result<FoundOrders, SearchError> {
    let mut open = OpenSearch::begin(orders, search).await?;
    let orders = open.find_page(after, limit).await?;
    Ok(open.end(orders).await?)
}

/// Returns a page like [`search_orders`], and the counts of all matching orders, or `None` if counting timed out.
pub async fn search_and_count(
    orders: &Orders,
    search: &OrderSearch,
    after: Option<&TimedPlace>,
    limit: u32,
) -> Result<(FoundOrders, Option<OrderCounts>), SearchError> {
    let mut open = OpenSearch::begin(orders, search).await?;
    let orders = open.find_page(after, limit).await?;
    // The count includes the orders of a first page, which are the newest.
    let newest = if after.is_none() { orders.as_slice() } else { &[] };
    let is_all = after.is_none() && orders.len() < limit as usize;
    let counts = match open.count_orders(newest, is_all).await {
        Ok(counts) => Some(counts),
        // A count reads 20 times as many orders as a page. A page without counts is still useful.
        Err(error) if db::is_out_of_time(&error) => None,
        Err(error) => return Err(error.into()),
    };
    Ok((open.end(orders).await?, counts))
}

/// Returns a page of orders. `$1` to `$14` are the filters, the position and the length.
const SEARCH: &str = "-- search orders
     SELECT * FROM orders
     WHERE ($1::boolean OR closed_at IS NULL)
       AND ($2::timestamptz IS NULL OR created_at >= $2) AND ($3::timestamptz IS NULL OR created_at < $3)
       AND ($4::text IS NULL OR CASE WHEN $1::boolean THEN closed_status ELSE status END = $4)
       AND ($5::text IS NULL OR area_id = $5)
       AND ($6::text IS NULL OR service_type = $6) AND ($7::text IS NULL OR driver_id = $7)
       AND ($8::text IS NULL OR customer_id = $8) AND ($9::boolean IS NULL OR held_for_review = $9)
       AND ($9 IS NOT TRUE AND $4 IS DISTINCT FROM 'PENDING' OR needs_decision)
       AND ($10::text[] IS NULL OR id = ANY ($10))
       AND ($11::timestamptz IS NULL OR (created_at, id) < ($11, $12::text))
       AND ($14::text IS NULL OR owner = $14)
     ORDER BY created_at DESC, id DESC LIMIT $13";

/// Counts the orders of a search by status: all of them, or those older than a position.
const COUNT: &str = "-- count searched orders
     SELECT status, count(*) FROM (
         SELECT status FROM orders
         WHERE ($1::boolean OR closed_at IS NULL)
           AND ($2::timestamptz IS NULL OR created_at >= $2) AND ($3::timestamptz IS NULL OR created_at < $3)
           AND ($4::text IS NULL OR CASE WHEN $1::boolean THEN closed_status ELSE status END = $4)
           AND ($5::text IS NULL OR area_id = $5)
           AND ($6::text IS NULL OR service_type = $6) AND ($7::text IS NULL OR driver_id = $7)
           AND ($8::text IS NULL OR customer_id = $8) AND ($9::boolean IS NULL OR held_for_review = $9)
           AND ($9 IS NOT TRUE AND $4 IS DISTINCT FROM 'PENDING' OR needs_decision)
           AND ($10::text[] IS NULL OR id = ANY ($10)) AND ($12::text IS NULL OR owner = $12)
           AND ($13::timestamptz IS NULL OR (created_at, id) < ($13, $14::text))
         ORDER BY created_at DESC, id DESC LIMIT $11) page
     GROUP BY status";

/// The same statements for orders with some metadata, in an additional parameter.
static SEARCH_BY_METADATA: LazyLock<String> = LazyLock::new(|| by_metadata(SEARCH, "$15"));
static COUNT_BY_METADATA: LazyLock<String> = LazyLock::new(|| by_metadata(COUNT, "$15"));

/// Adds the metadata to a statement. Its condition is that of the index, and a join lets the planner start with it.
fn by_metadata(statement: &str, parameter: &str) -> String {
    let named = statement.replacen("orders\n", "orders by metadata\n", 1);
    let wanted = format!("(SELECT order_id FROM order_details WHERE metadata <> '{{}}' AND metadata @> {parameter}) d");
    named.replacen("FROM orders\n", &format!("FROM orders JOIN {wanted} ON d.order_id = orders.id\n"), 1)
}

/// Returns the statement that searches orders by metadata. For tests of its plan.
pub fn metadata_search() -> &'static str {
    &SEARCH_BY_METADATA
}

struct OpenSearch<'a> {
    tx: Transaction<'static>,
    search: &'a OrderSearch,
    closed: ClosedOrders,
    /// Orders with the given id, if an id is given.
    named: Option<Vec<String>>,
    now: DateTime<Utc>,
}

impl<'a> OpenSearch<'a> {
    async fn begin(orders: &Orders, search: &'a OrderSearch) -> Result<Self, SearchError> {
        let mut tx = orders.core.read_only.begin().await?;
        let limit = SEARCH_TIMEOUT.min(orders.config.database.statement_timeout);
        let (_, now): (String, DateTime<Utc>) = sqlx::query_as(
            "-- begin search
             SELECT set_config('statement_timeout', $1, true), dispatchq_now()",
        )
        .bind(limit.as_millis().to_string())
        .fetch_one(&mut *tx)
        .await?;
        let closed = search.closed_orders(now)?;
        let named = match &search.any_id {
            Some(id) => Some(find_named(&mut tx, &orders.config, id).await?),
            None => None,
        };
        Ok(Self { tx, search, closed, named, now })
    }

    /// Returns whether an id is given that no order has.
    fn finds_nothing(&self) -> bool {
        self.named.as_ref().is_some_and(Vec::is_empty)
    }

    /// Returns whether the search omits the condition "is open". It does so for a closed status, because only closed
    /// orders have an index by status. Orders with an open status are found among all open orders.
    fn finds_closed(&self) -> bool {
        let includes_closed = self.search.status.map_or(self.closed != ClosedOrders::None, OrderStatus::is_closed);
        self.search.closed != Some(false) && includes_closed
    }

    /// Returns the range of creation times for closed orders, if any.
    fn span(&self) -> (Option<DateTime<Utc>>, Option<DateTime<Utc>>) {
        match self.closed {
            ClosedOrders::Within { from, to } => (Some(from), to),
            ClosedOrders::None | ClosedOrders::All => (None, None),
        }
    }

    async fn find_page(&mut self, after: Option<&TimedPlace>, limit: u32) -> Result<Vec<Order>, sqlx::Error> {
        if self.finds_nothing() {
            return Ok(Vec::new());
        }
        let (from, to) = self.span();
        let statement = if self.search.metadata.is_empty() { SEARCH } else { &SEARCH_BY_METADATA };
        let query = sqlx::query_as(AssertSqlSafe(statement))
            // A generic plan would use no index.
            .persistent(false)
            .bind(self.finds_closed())
            .bind(from)
            .bind(to)
            .bind(self.search.status)
            .bind(&self.search.area)
            .bind(&self.search.service_type)
            .bind(&self.search.driver)
            .bind(&self.search.customer)
            .bind(self.search.held)
            .bind(&self.named)
            .bind(after.map(|place| place.at))
            .bind(after.map(|place| place.id.as_str()))
            .bind(i64::from(limit))
            .bind(&self.search.owner);
        let query = bind_metadata(query, self.search);
        query.fetch_all(&mut *self.tx).await
    }

    /// Counts the matching orders. `newest` are the newest of them, and the statement does not read them again. With
    /// `is_all` there are no others.
    async fn count_orders(&mut self, newest: &[Order], is_all: bool) -> Result<OrderCounts, sqlx::Error> {
        let mut orders_by_status = BTreeMap::<OrderStatus, i64>::new();
        for order in newest {
            *orders_by_status.entry(order.status).or_default() += 1;
        }
        if !is_all && !self.finds_nothing() {
            for (status, orders) in self.count_before(newest).await? {
                *orders_by_status.entry(status).or_default() += orders;
            }
        }
        let is_cut = orders_by_status.values().sum::<i64>() > MOST_COUNTED;
        let mut by_status: Vec<_> = orders_by_status.into_iter().collect();
        by_status.sort_by_key(|(status, orders)| (Reverse(*orders), status.as_str()));
        Ok(OrderCounts { by_status, is_cut })
    }

    /// Returns the number of matching orders by status: those older than the last of `newest`, or all without it.
    async fn count_before(&mut self, newest: &[Order]) -> Result<Vec<(OrderStatus, i64)>, sqlx::Error> {
        let (from, to) = self.span();
        let last = newest.last();
        let known = i64::try_from(newest.len()).unwrap_or(MOST_COUNTED);
        let statement = if self.search.metadata.is_empty() { COUNT } else { &COUNT_BY_METADATA };
        let query = sqlx::query_as(AssertSqlSafe(statement))
            .persistent(false)
            .bind(self.finds_closed())
            .bind(from)
            .bind(to)
            .bind(self.search.status)
            .bind(&self.search.area)
            .bind(&self.search.service_type)
            .bind(&self.search.driver)
            .bind(&self.search.customer)
            .bind(self.search.held)
            .bind(&self.named)
            .bind(MOST_COUNTED + 1 - known)
            .bind(&self.search.owner)
            .bind(last.map(|order| order.created_at))
            .bind(last.map(|order| order.id.as_str()));
        let query = bind_metadata(query, self.search);
        query.fetch_all(&mut *self.tx).await
    }

    async fn end(self, orders: Vec<Order>) -> Result<FoundOrders, sqlx::Error> {
        self.tx.rollback().await?;
        Ok(FoundOrders { orders, closed: self.closed, now: self.now })
    }
}

/// Binds the metadata, if the statement has a parameter for them.
fn bind_metadata<'q, T>(
    query: QueryAs<'q, Postgres, T, PgArguments>,
    search: &'q OrderSearch,
) -> QueryAs<'q, Postgres, T, PgArguments> {
    if search.metadata.is_empty() { query } else { query.bind(Json(&search.metadata)) }
}

/// Returns the orders that have this id as any of their ids.
async fn find_named(db: &mut Connection, config: &Config, id: &str) -> Result<Vec<String>, sqlx::Error> {
    let partners: Vec<String> = config.partners.keys().map(ToString::to_string).collect();
    sqlx::query_scalar(
        "-- orders that bear an id
         SELECT id FROM orders WHERE id = $1
         UNION (SELECT id FROM orders WHERE job_id = $1 ORDER BY created_at DESC LIMIT $3)
         UNION (SELECT order_id FROM bookings WHERE partner = ANY ($2) AND booking_id = $1 LIMIT $3)
         UNION (SELECT order_id FROM bookings WHERE job_id = $1 LIMIT $3)
         UNION (SELECT id FROM orders WHERE customer_id = $1 ORDER BY created_at DESC LIMIT $3)
         UNION (SELECT id FROM orders WHERE driver_id = $1 ORDER BY created_at DESC LIMIT $3)",
    )
    .bind(id)
    .bind(partners)
    .bind(MOST_NAMED)
    .fetch_all(db)
    .await
}

/// Filter for scheduled orders. `None` matches every order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScheduledFilter {
    pub service_type: Option<ServiceType>,
    pub area: Option<AreaId>,
}

/// Maximum scheduled orders that a count includes, those with the earliest pickup first.
const MOST_SCHEDULED: i64 = 20_000;

/// Open orders that were created for later, with a pickup in the quarter hour from `at`.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct ScheduledQuarter {
    pub at: DateTime<Utc>,
    pub orders: i64,
    pub without_driver: i64,
}

/// Returns the number of scheduled orders by the quarter hour of their pickup, in this span of pickups. Includes those
/// whose dispatch has started.
pub async fn count_scheduled(
    db: &Pool,
    filter: &ScheduledFilter,
    (from, to): (DateTime<Utc>, DateTime<Utc>),
) -> Result<Vec<ScheduledQuarter>, sqlx::Error> {
    sqlx::query_as(
        "-- count scheduled orders by quarter hour
         SELECT date_bin('15 minutes', pickup_at, to_timestamp(0)) AS at, count(*) AS orders,
                count(*) FILTER (WHERE NOT on_trip) AS without_driver
         FROM (SELECT pickup_at, on_trip FROM orders
               WHERE starts_at IS NOT NULL AND closed_at IS NULL AND pickup_at >= $1 AND pickup_at < $2
                 AND ($3::text IS NULL OR service_type = $3) AND ($4::text IS NULL OR area_id = $4)
               ORDER BY pickup_at, id LIMIT $5) page
         GROUP BY 1 ORDER BY 1",
    )
    .persistent(false)
    .bind(from)
    .bind(to)
    .bind(&filter.service_type)
    .bind(&filter.area)
    .bind(MOST_SCHEDULED)
    .fetch_all(db)
    .await
}

/// Returns the scheduled orders in this span of pickups, the earliest first.
pub async fn list_scheduled(
    db: &Pool,
    filter: &ScheduledFilter,
    (from, to): (DateTime<Utc>, DateTime<Utc>),
    limit: u32,
) -> Result<Vec<Order>, sqlx::Error> {
    sqlx::query_as(
        "-- list scheduled orders
         SELECT * FROM orders
         WHERE starts_at IS NOT NULL AND closed_at IS NULL AND pickup_at >= $1 AND pickup_at < $2
           AND ($3::text IS NULL OR service_type = $3) AND ($4::text IS NULL OR area_id = $4)
         ORDER BY pickup_at, id LIMIT $5",
    )
    .persistent(false)
    .bind(from)
    .bind(to)
    .bind(&filter.service_type)
    .bind(&filter.area)
    .bind(i64::from(limit))
    .fetch_all(db)
    .await
}

/// Returns at most `limit` orders that wait for a person, those that have waited longest first. They are PENDING, under
/// review, or on a trip whose next step is overdue. Overdue trips are found through the 2,000 oldest open alerts.
pub async fn list_to_decide(db: &Pool, limit: u32) -> Result<Vec<Order>, sqlx::Error> {
    sqlx::query_as(
        "-- orders to decide on
         SELECT * FROM orders
         WHERE id IN ((SELECT id FROM orders WHERE needs_decision ORDER BY created_at, id LIMIT 2 * $1)
                      UNION ALL (SELECT a.order_id FROM (SELECT order_id, kind FROM alerts WHERE acked_at IS NULL
                                                         ORDER BY id LIMIT 2000) a
                                 JOIN orders o ON o.id = a.order_id AND o.status IN ('DRIVER_ASSIGNED', 'PICKED_UP')
                                 WHERE a.kind = 'STALE_TRIP' LIMIT $1))
         ORDER BY updated_at, id LIMIT $1",
    )
    .bind(i64::from(limit))
    .fetch_all(db)
    .await
}

/// Returns one page of the orders that need a refund, or of those with one refund state, the oldest first. Completed
/// refunds are listed only on request, the newest order first.
pub async fn list_refunds(
    db: &Pool,
    only: Option<RefundProgress>,
    after: Option<&TimedPlace>,
    limit: u32,
) -> Result<Vec<Order>, sqlx::Error> {
    let (owed, started) = match only {
        None => (true, true),
        Some(RefundProgress::Owed) => (true, false),
        Some(RefundProgress::Started) => (false, true),
        Some(RefundProgress::Completed) => return list_completed_refunds(db, after, limit).await,
    };
    sqlx::query_as(
        "-- list refunds
         SELECT * FROM orders
         WHERE owes_refund AND closed_at IS NOT NULL
           AND ($1::boolean OR status = 'REFUND_PENDING') AND ($2::boolean OR status <> 'REFUND_PENDING')
           AND ($3::timestamptz IS NULL OR (closed_at, id) > ($3, $4::text))
         ORDER BY closed_at, id LIMIT $5",
    )
    // A generic plan would read all rows before the position.
    .persistent(false)
    .bind(owed)
    .bind(started)
    .bind(after.map(|place| place.at))
    .bind(after.map(|place| place.id.as_str()))
    .bind(i64::from(limit))
    .fetch_all(db)
    .await
}

async fn list_completed_refunds(db: &Pool, after: Option<&TimedPlace>, limit: u32) -> Result<Vec<Order>, sqlx::Error> {
    sqlx::query_as(
        "-- list completed refunds
         SELECT * FROM orders
         WHERE closed_status = 'REFUNDED' AND ($1::timestamptz IS NULL OR (created_at, id) < ($1, $2::text))
         ORDER BY created_at DESC, id DESC LIMIT $3",
    )
    .persistent(false)
    .bind(after.map(|place| place.at))
    .bind(after.map(|place| place.id.as_str()))
    .bind(i64::from(limit))
    .fetch_all(db)
    .await
}

/// Returns the position of an order in its list of refunds, for the next page.
pub fn refund_place(order: &Order) -> TimedPlace {
    let is_completed = order.status == OrderStatus::Refunded;
    let at = if is_completed { order.created_at } else { order.closed_at.unwrap_or(order.updated_at) };
    TimedPlace { at, id: order.id.clone() }
}
