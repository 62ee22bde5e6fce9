//! Loads orders, many in one statement.

use std::collections::HashMap;

use jobs::OrderId;
use model::{
    ids::{OfferId, PartnerName},
    order::{
        AskedRefund, Booking, KnownPayment, Offer, Order, OrderStatus, PendingAlert, PendingCallback, PendingMessage,
        PollingShare, Snapshot,
    },
};
use serde::de::DeserializeOwned;
use sqlx::{FromRow, PgExecutor, Row, postgres::PgRow, types::Json};

use foundation::db::{DatabaseFailure, Pool, classify_error, copy_error};

/// An order, and the offer that the decision is about.
pub(super) type OrderQuery = (OrderId, Option<OfferId>);
pub(super) type LoadResult = Result<Option<Snapshot>, sqlx::Error>;

/// Loads the order with everything that decisions need, and the time, in one statement.
pub async fn load_order(db: impl PgExecutor<'_>, id: &OrderId) -> LoadResult {
    load_order_with(db, id, None).await
}

/// Loads the order like [`load_order`], with this offer, however old it is. Otherwise only live and accepted offers and
/// those of the current attempt are loaded. Loading thus stays fast after many attempts with many drivers.
pub async fn load_order_with(db: impl PgExecutor<'_>, id: &OrderId, offer: Option<OfferId>) -> LoadResult {
    Ok(load_orders(db, &[(id.clone(), offer)]).await?.pop().flatten())
}

/// Loads the orders. Returns one result per query, in their order.
pub(super) async fn load_all(db: &Pool, queries: &[OrderQuery]) -> Vec<LoadResult> {
    if queries.is_empty() {
        return Vec::new();
    }
    match load_orders(db, queries).await {
        // An order that this version cannot decode does not affect the others.
        Err(error) if queries.len() > 1 && classify_error(&error) == DatabaseFailure::Own => {
            let mut results = Vec::with_capacity(queries.len());
            for (id, offer) in queries {
                results.push(load_order_with(db, id, *offer).await);
            }
            results
        }
        loaded => share_result(loaded, queries.len()),
    }
}

/// Loads the shares that operators set at run time for these partners. Returns one result per partner, in their order.
pub(super) async fn load_polling_shares(db: &Pool, partners: &[PartnerName]) -> Vec<Result<Option<i16>, sqlx::Error>> {
    let rows: Result<Vec<(PartnerName, i16)>, sqlx::Error> = sqlx::query_as(
        "-- polling percent
         SELECT partner, polling_percent FROM partner_settings
         WHERE partner = ANY ($1) AND polling_percent IS NOT NULL",
    )
    .bind(partners.iter().map(PartnerName::as_str).collect::<Vec<_>>())
    .fetch_all(db)
    .await;
    let shares = rows.map(|rows| {
        let set: HashMap<_, _> = rows.into_iter().collect();
        partners.iter().map(|partner| set.get(partner).copied()).collect()
    });
    share_result(shares, partners.len())
}

/// Returns one result per item, with copies of a common error.
fn share_result<T>(results: Result<Vec<T>, sqlx::Error>, items: usize) -> Vec<Result<T, sqlx::Error>> {
    match results {
        Ok(results) => results.into_iter().map(Ok).collect(),
        Err(error) => {
            let mut shared: Vec<_> = (1..items).map(|_| Err(copy_error(&error))).collect();
            shared.push(Err(error));
            shared
        }
    }
}

/// Loads the orders in one statement. It names each column, because a new column must not change the result of a
/// prepared statement in a running process. `state || ''` makes Postgres find pending rows by their order and not
/// through the index of all pending rows: see [`Pool`], whose cached plans may date from a time with few of them.
/// Offers are read only for orders of our own fleet, bookings and callbacks only for orders of partners, because the
/// others have none.
async fn load_orders(db: impl PgExecutor<'_>, queries: &[OrderQuery]) -> Result<Vec<Option<Snapshot>>, sqlx::Error> {
    let ids: Vec<&str> = queries.iter().map(|(id, _)| id.as_str()).collect();
    let offers: Vec<Option<OfferId>> = queries.iter().map(|(_, offer)| *offer).collect();
    let rows = sqlx::query(include_str!("load_orders.sql")).bind(ids).bind(offers).fetch_all(db).await?;
    let mut loaded: Vec<Option<Snapshot>> = queries.iter().map(|_| None).collect();
    for row in &rows {
        let place: i64 = row.try_get("place")?;
        let found = usize::try_from(place - 1).ok().and_then(|index| loaded.get_mut(index));
        if let Some(found) = found {
            *found = Some(snapshot_from_row(row)?);
        }
    }
    Ok(loaded)
}

/// Returns the list in a column. Null is an empty list.
fn list_from_column<T: DeserializeOwned>(row: &PgRow, name: &str) -> Result<Vec<T>, sqlx::Error> {
    let list: Option<Json<Vec<T>>> = row.try_get(name)?;
    Ok(list.map(|list| list.0).unwrap_or_default())
}

fn snapshot_from_row(row: &PgRow) -> Result<Snapshot, sqlx::Error> {
    let order = Order::from_row(row)?;
    let may_be_polled = order.status == OrderStatus::PendingJobId && order.next_poll_at.is_none();
    let partner = order.partner.clone().filter(|_| may_be_polled);
    let percent = row.try_get("polling_percent")?;
    Ok(Snapshot {
        order,
        polling_share: partner.map(|partner| PollingShare { partner, percent }),
        offers: list_from_column::<Offer>(row, "offers")?,
        bookings: list_from_column::<Booking>(row, "bookings")?,
        messages: list_from_column::<PendingMessage>(row, "messages")?,
        alerts: list_from_column::<PendingAlert>(row, "alerts")?,
        callbacks: list_from_column::<PendingCallback>(row, "callbacks")?,
        payments: list_from_column::<KnownPayment>(row, "payments")?,
        refund_at: row.try_get("refund_at")?,
        refund: row.try_get::<Option<Json<AskedRefund>>, _>("refund")?.map(|refund| refund.0),
        now: row.try_get("now")?,
    })
}
