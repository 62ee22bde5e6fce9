//! How an order comes into being: one SQL function, whoever calls it.
//!
//! The row is committed first, its timers are enqueued after. If the process dies in between, or Redis is away, the
//! reconciler finds the order overdue and enqueues them: an accepted order is never lost.

use jobs::OrderId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Order, PaymentStatus, Snapshot, act::enqueue, store};
use crate::app::App;

/// A place on earth, as the requirement documents write it.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Location {
    pub latitude: f64,
    pub longitude: f64,
}

/// What a producer says of a new order.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NewOrder {
    /// The producer's own id; without it one is made.
    pub order_id: Option<OrderId>,
    pub service_type: String,
    pub pickup: Location,
    #[serde(default = "unpaid")]
    pub payment_status: PaymentStatus,
    /// In the smallest unit of the currency.
    pub amount_minor: Option<i64>,
    /// ISO 4217.
    pub currency: Option<String>,
    pub area_id: Option<String>,
    pub customer_id: Option<String>,
}

fn unpaid() -> PaymentStatus {
    PaymentStatus::Unpaid
}

#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    #[error("{0}")]
    Invalid(String),
    #[error("an order with the id {0} exists already")]
    Exists(OrderId),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl NewOrder {
    /// An id nobody else has.
    pub fn random_id() -> OrderId {
        Self::id_of(Uuid::now_v7())
    }

    /// The id that this work always leads to, so that work done again cannot make a second order.
    pub fn id_of(work: Uuid) -> OrderId {
        format!("ORD-{}", work.simple()).parse().expect("a UUID fits into an order id")
    }

    /// Did this request make that order?
    pub fn made(&self, order: &Order) -> bool {
        self.service_type == order.service_type
            && (self.pickup.latitude, self.pickup.longitude) == (order.pickup_lat, order.pickup_lng)
            && (self.amount_minor, &self.currency) == (order.amount_minor, &order.currency)
            && (&self.area_id, &self.customer_id) == (&order.area_id, &order.customer_id)
    }

    fn validate(&self, app: &App) -> Result<(), CreateError> {
        let invalid = |text: String| Err(CreateError::Invalid(text));
        if !app.config.knows_service_type(&self.service_type) {
            let known: Vec<_> = app.config.service_types.keys().map(String::as_str).collect();
            return invalid(format!(
                "unknown service_type '{}'; known are {} (config.toml, [service_types])",
                self.service_type,
                known.join(", ")
            ));
        }
        let Location { latitude, longitude } = self.pickup;
        if !(-90.0..=90.0).contains(&latitude) || !(-180.0..=180.0).contains(&longitude) {
            return invalid(format!("pickup {latitude}, {longitude} is no place on earth"));
        }
        if let Some(currency) = &self.currency
            && !(currency.len() == 3 && currency.bytes().all(|b| b.is_ascii_uppercase()))
        {
            return invalid(format!("currency '{currency}' is not an ISO 4217 code such as IDR"));
        }
        if self.amount_minor.is_some_and(|amount| amount < 0) {
            return invalid("amount_minor must not be negative".to_owned());
        }
        for (name, value) in [("area_id", &self.area_id), ("customer_id", &self.customer_id)] {
            if value.as_ref().is_some_and(|v| v.is_empty() || v.len() > 64 || v.chars().any(char::is_control)) {
                return invalid(format!("{name} must have 1 to 64 printable characters"));
            }
        }
        Ok(())
    }
}

/// Creates the order under `id` and enqueues its timers.
pub async fn create(app: &App, id: OrderId, new: &NewOrder, actor: &str) -> Result<Snapshot, CreateError> {
    new.validate(app)?;
    let created: bool = sqlx::query_scalar(
        "-- create order
         SELECT dispatchq_create_order($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
    )
    .bind(id.as_str())
    .bind(&new.service_type)
    .bind(new.pickup.latitude)
    .bind(new.pickup.longitude)
    .bind(new.payment_status.as_str())
    .bind(new.amount_minor)
    .bind(&new.currency)
    .bind(&new.area_id)
    .bind(&new.customer_id)
    .bind(actor)
    .fetch_one(&app.db)
    .await?;
    if !created {
        return Err(CreateError::Exists(id));
    }
    let snapshot = store::load(&app.db, &id).await?.ok_or(sqlx::Error::RowNotFound)?;
    enqueue(app, &snapshot).await;
    Ok(snapshot)
}
