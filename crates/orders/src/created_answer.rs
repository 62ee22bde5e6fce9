//! Answers to repeated creations. The row of an idempotency key keeps only the values that later changes of the order
//! replace. The rest of the answer is rendered from the order.
//!
//! An order is kept at least a day after its end, and the key is valid for a day, so the order exists as long as its key
//! is valid. An erasure of the order removes the key.

use chrono::{DateTime, Utc};
use jobs::OrderId;
use model::{
    ids::PartnerName,
    order::{CreatedSchedule, PaymentStatus, Snapshot},
    view::OrderView,
};
use serde::Deserialize;

use crate::{details::load_details, order_store::load::load_order};
use foundation::db::Pool;

/// Values of a creation, as `order_store/kept_answers.sql` stores them. No other answer has exactly these members.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredCreation {
    order_id: OrderId,
    created: CreatedValues,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CreatedValues {
    payment_status: PaymentStatus,
    partner: Option<PartnerName>,
    pickup_at: Option<DateTime<Utc>>,
    starts_at: Option<DateTime<Utc>>,
    lifetime_deadline: Option<DateTime<Utc>>,
}

/// Returns the order as its creation answered. `None` if it does not exist.
pub async fn render_creation(db: &Pool, stored: StoredCreation) -> Result<Option<OrderView>, sqlx::Error> {
    let Some(now) = load_order(db, &stored.order_id).await? else { return Ok(None) };
    let CreatedValues { payment_status, partner, pickup_at, starts_at, lifetime_deadline } = stored.created;
    // A scheduled order may have been moved since.
    let schedule = CreatedSchedule {
        pickup_at,
        starts_at,
        lifetime_deadline: lifetime_deadline.unwrap_or(now.order.lifetime_deadline),
    };
    let details = load_details(db, &now.order).await?;
    let order = now.order.at_creation(payment_status, partner, schedule);
    let created_at = order.created_at;
    Ok(Some(OrderView::from(&Snapshot::from_order(order, created_at)).with_details(details)))
}
