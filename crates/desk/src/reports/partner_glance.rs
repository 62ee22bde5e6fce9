//! Counts of work that waits for partners, for a page that is open all day. Each statement reads a bounded number of
//! rows through an index.

use std::collections::BTreeMap;

use model::ids::PartnerName;

use super::glance::MOST;
use foundation::db::Pool;

/// Work that waits for one partner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PartnerLoad {
    /// Orders without a driver yet.
    pub searching: i64,
    /// Orders whose driver is on the way or drives the customer.
    pub riding: i64,
    /// Bookings that the partner has not answered yet.
    pub asked: i64,
    /// Bookings whose cancellation the partner has not confirmed yet.
    pub cancels: i64,
}

/// Work by partner, only for partners that have some.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartnerLoads {
    pub by_partner: BTreeMap<PartnerName, PartnerLoad>,
    /// Whether there are more open orders or bookings than [`MOST`]; then only the oldest were counted.
    pub is_cut: bool,
}

#[derive(sqlx::FromRow)]
struct OrderCount {
    /// `None`: our own fleet.
    partner: Option<PartnerName>,
    orders: i64,
    searching: i64,
    riding: i64,
}

#[derive(sqlx::FromRow)]
struct BookingCount {
    partner: PartnerName,
    bookings: i64,
    cancels: i64,
}

/// Counts the work that waits for partners.
pub async fn count_loads(db: &Pool) -> Result<PartnerLoads, sqlx::Error> {
    let orders: Vec<OrderCount> = sqlx::query_as(
        "-- glance at orders of partners
         WITH page AS MATERIALIZED (
             SELECT partner, status FROM orders WHERE closed_at IS NULL ORDER BY created_at, id LIMIT $1)
         SELECT partner, count(*) AS orders, count(*) FILTER (WHERE status IN ('PENDING_JOB_ID', 'ASSIGNED')) AS searching,
                count(*) FILTER (WHERE status IN ('DRIVER_ASSIGNED', 'PICKED_UP')) AS riding
         FROM page GROUP BY partner",
    )
    .bind(MOST + 1)
    .fetch_all(db)
    .await?;
    let bookings: Vec<BookingCount> = sqlx::query_as(
        "-- glance at bookings of partners
         SELECT partner, count(*) AS bookings, count(*) FILTER (WHERE state = 'cancel_wanted') AS cancels
         FROM (SELECT partner, state FROM bookings WHERE state IN ('intent', 'unknown', 'cancel_wanted')
               ORDER BY order_id, attempt_no LIMIT $1) page
         GROUP BY partner",
    )
    .bind(MOST + 1)
    .fetch_all(db)
    .await?;
    let mut loads = PartnerLoads {
        is_cut: orders.iter().map(|row| row.orders).sum::<i64>() > MOST
            || bookings.iter().map(|row| row.bookings).sum::<i64>() > MOST,
        ..PartnerLoads::default()
    };
    for OrderCount { partner, searching, riding, .. } in orders {
        if let Some(partner) = partner {
            let load = loads.by_partner.entry(partner).or_default();
            (load.searching, load.riding) = (searching, riding);
        }
    }
    for BookingCount { partner, bookings, cancels } in bookings {
        let load = loads.by_partner.entry(partner).or_default();
        (load.asked, load.cancels) = (bookings - cancels, cancels);
    }
    Ok(loads)
}
