//! What an order's own timers follow from: a few columns of the many that a row has.

use chrono::{DateTime, Utc};
use jobs::OrderId;

use super::{Order, OrderStatus};

/// The columns of a row of `orders` that its timers follow from; each as in [`Order`]. The reconciler reads them of every open order.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct OrderDeadlines {
    #[sqlx(try_from = "String")]
    pub id: OrderId,
    pub status: OrderStatus,
    pub attempt_no: i32,
    pub attempt_deadline: Option<DateTime<Utc>>,
    pub next_attempt_at: Option<DateTime<Utc>>,
    pub poll_no: i32,
    pub next_poll_at: Option<DateTime<Utc>>,
    pub lifetime_deadline: DateTime<Utc>,
    pub lifetime_waived: bool,
    pub trip_deadline: Option<DateTime<Utc>>,
    pub held_for_review: bool,
    pub updated_at: DateTime<Utc>,
}

impl From<&Order> for OrderDeadlines {
    fn from(order: &Order) -> Self {
        Self {
            id: order.id.clone(),
            status: order.status,
            attempt_no: order.attempt_no,
            attempt_deadline: order.attempt_deadline,
            next_attempt_at: order.next_attempt_at,
            poll_no: order.poll_no,
            next_poll_at: order.next_poll_at,
            lifetime_deadline: order.lifetime_deadline,
            lifetime_waived: order.lifetime_waived,
            trip_deadline: order.trip_deadline,
            held_for_review: order.held_for_review,
            updated_at: order.updated_at,
        }
    }
}
