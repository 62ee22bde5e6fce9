//! Rows of orders, and helpers that pages share.

use axum::extract::Path;
use chrono::{DateTime, Utc};
use jobs::OrderId;
use model::{
    ids::{AreaId, DriverId},
    order::{Order, Snapshot},
};
use serde::Deserialize;

use crate::{
    catalogue::tr,
    page_error::PageError,
    reasons::describe_hold,
    shown::{Chip, Code, Countdown, Moment, describe_age, describe_amount},
};
use model::view::OrderView;

/// An order as a row.
pub(super) struct OrderRow {
    pub(super) id: String,
    pub(super) status: Chip,
    /// Reason why a person must decide, if one must.
    pub(super) held: Option<String>,
    pub(super) service_type: String,
    pub(super) area: String,
    pub(super) driver: String,
    pub(super) customer: String,
    pub(super) amount: String,
    pub(super) created: Moment,
    /// Time since the last change.
    pub(super) unchanged_for: String,
    /// Next automatic action and its time.
    pub(super) next: Option<(Code, Countdown)>,
    pub(super) has_driver: bool,
    /// Whether the driver belongs to our own fleet.
    pub(super) is_ours: bool,
}

impl OrderRow {
    pub(super) fn new(order: Order, now: DateTime<Utc>) -> Self {
        let updated_at = order.updated_at;
        let held = order.held_reason.as_deref().map(|reason| describe_hold(order.hold_cause.as_ref(), reason));
        let has_driver = order.status.occupies_driver();
        let view = OrderView::from(&Snapshot::from_order(order, now));
        let text = |value: Option<String>| value.unwrap_or_else(|| "–".to_owned());
        Self {
            id: view.order_id.to_string(),
            status: Chip::of_status(view.status),
            held,
            service_type: view.service_type.into_string(),
            area: text(view.area_id.map(AreaId::into_string)),
            driver: text(view.driver_id.map(DriverId::into_string)),
            customer: text(view.customer_id),
            amount: describe_amount(view.amount_minor, view.currency.as_deref()),
            created: Moment(view.created_at),
            unchanged_for: describe_age(Some(updated_at), now),
            next: view.next.map(|next| (Code::new("next_step", next.action), Countdown { to: next.at, now })),
            has_driver,
            is_ours: view.partner.is_none(),
        }
    }
}

/// A form that contains only a reason.
#[derive(Debug, Deserialize)]
pub(crate) struct ReasonForm {
    #[serde(default)]
    pub(super) reason: String,
}

/// A form whose button may name the page to return to.
#[derive(Debug, Deserialize)]
pub(crate) struct BackForm {
    pub(super) back: Option<String>,
}

/// Query of a page without filters. It names the action that was just performed, for a notice.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Deed {
    pub(crate) did: Option<String>,
}

/// Parses the order that a path names.
pub(crate) fn parse_order(Path(id): Path<String>) -> Result<OrderId, PageError> {
    id.parse().map_err(|_| PageError::NotFound(tr("problem.no_order_id")))
}
