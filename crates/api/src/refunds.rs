//! Refunds that are due: `/api/v1/refunds`. `POST /api/v1/orders/{id}/refund` records their progress at the order.

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};
use chrono::{DateTime, Utc};
use jobs::OrderId;
use model::{
    ids::{AreaId, ServiceType},
    order::{PaymentStatus, RefundProgress},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema, openapi::Object};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    auth::ApiCaller,
    bindings::{next_cursor, page_size, word_schema},
    error::ApiError,
    openapi::{CallErrors, example_ticket},
    orders::{STAFF, parse_place},
    scope::retain_visible,
};
use app::App;
use foundation::db;
use model::order::{Order, OrderStatus};
use notify::tickets::{self, AlertTicket};
use orders::search;

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(list_refunds))
}

/// Progress of a refund.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum RefundState {
    /// The refund has not started.
    Owed,
    /// Support started it.
    Started,
    /// The money was paid back.
    Completed,
}

impl From<RefundProgress> for RefundState {
    fn from(progress: RefundProgress) -> Self {
        match progress {
            RefundProgress::Owed => Self::Owed,
            RefundProgress::Started => Self::Started,
            RefundProgress::Completed => Self::Completed,
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct RefundQuery {
    /// Only refunds in this state. Default: `owed` and `started`.
    #[param(schema_with = progress_schema)]
    state: Option<RefundState>,
    /// The `next_cursor` of the previous page.
    #[param(pattern = "^[0-9]{1,15}\\.[A-Za-z0-9_-]{1,64}$")]
    cursor: Option<String>,
    /// Maximum number of refunds per page.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u32>,
}

/// Refund of a paid order that ended without a ride.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Refund)]
struct RefundView {
    #[schema(value_type = String)]
    order_id: OrderId,
    state: RefundState,
    order_status: OrderStatus,
    payment_status: PaymentStatus,
    /// Time when the order was first reported as paid.
    #[schema(required)]
    paid_at: Option<DateTime<Utc>>,
    /// Amount in the smallest unit of the currency.
    #[schema(required)]
    amount_minor: Option<i64>,
    #[schema(required)]
    currency: Option<String>,
    #[schema(required)]
    customer_id: Option<String>,
    #[schema(value_type = String)]
    service_type: ServiceType,
    #[schema(required, value_type = Option<String>)]
    area_id: Option<AreaId>,
    /// Time when the order ended.
    #[schema(required)]
    closed_at: Option<DateTime<Utc>>,
    /// Seconds since the order ended.
    waits_sec: i64,
    /// Tickets for this refund, oldest first.
    tickets: Vec<AlertTicket>,
}

impl RefundView {
    fn new(order: Order, tickets: Vec<AlertTicket>, now: DateTime<Utc>) -> Self {
        let state = order.refund_progress().unwrap_or(RefundProgress::Owed).into();
        let waits_sec = order.closed_at.map_or(0, |closed_at| (now - closed_at).num_seconds().max(0));
        Self {
            order_id: order.id,
            state,
            order_status: order.status,
            payment_status: order.payment_status,
            paid_at: order.paid_at,
            amount_minor: order.amount_minor,
            currency: order.currency,
            customer_id: order.customer_id,
            service_type: order.service_type,
            area_id: order.area_id,
            closed_at: order.closed_at,
            waits_sec,
            tickets,
        }
    }
}

fn progress_schema() -> Object {
    word_schema(RefundProgress::ALL.map(RefundProgress::as_str))
}

#[derive(Debug, Serialize, ToSchema)]
struct RefundPage {
    refunds: Vec<RefundView>,
    /// Value of `cursor` for the next page; null on the last page.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// Lists refunds that are owed or started, oldest first, page by page.
///
/// `state=completed` lists refunds that were paid back, newest order first.
#[utoipa::path(get, path = "/", tag = "refunds", params(RefundQuery), extensions(("x-roles" = json!(STAFF))),
    responses(
        (status = 200, description = "success", body = RefundPage,
         example = json!({ "refunds": [{
             "order_id": "ORD-1", "state": "owed", "order_status": "CANCELLED_BY_USER", "payment_status": "PAID",
             "paid_at": "2026-01-09T08:00:00Z",
             "amount_minor": 150_000, "currency": "IDR", "customer_id": "CUS-1", "service_type": "RIDE",
             "area_id": "JKT-PUSAT", "closed_at": "2026-01-09T08:30:00Z", "waits_sec": 120,
             "tickets": [example_ticket()] }], "next_cursor": null })),
        CallErrors,
    ))]
async fn list_refunds(
    State(app): State<App>,
    caller: ApiCaller,
    wanted: Result<Query<RefundQuery>, QueryRejection>,
) -> Result<Json<RefundPage>, ApiError> {
    caller.require_role(&STAFF)?;
    let app = caller.reading(app);
    let Query(RefundQuery { state, cursor, limit }) = wanted?;
    let limit = page_size(limit)?;
    let after = parse_place(cursor.as_deref())?;
    let only = state.map(|state| match state {
        RefundState::Owed => RefundProgress::Owed,
        RefundState::Started => RefundProgress::Started,
        RefundState::Completed => RefundProgress::Completed,
    });
    let mut rows = search::list_refunds(&app.core.db, only, after.as_ref(), limit).await?;
    retain_visible(&app, caller.scope(), &mut rows, |order| Some(order.id.as_str())).await?;
    let next_cursor = next_cursor(&rows, limit, |row| search::refund_place(row).to_string());
    let now = db::database_now(&app.core.db).await?;
    let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
    let mut tickets = tickets::list_refund_tickets(&app.core.db, &app.notify.channels, &ids).await?;
    let refunds = rows.into_iter().map(|row| {
        let tickets = tickets.remove(row.id.as_str()).unwrap_or_default();
        RefundView::new(row, tickets, now)
    });
    let refunds = refunds.collect();
    Ok(Json(RefundPage { refunds, next_cursor }))
}
