//! The link for the customer in the answer to a creation.
//!
//! It is added after the answer was stored for repeated requests, so no row has it. A repeated answer gets the same one.

use app::App;
use chrono::{DateTime, Utc};
use jobs::OrderId;
use orders::tracking::token::{TokenOrder, TrackingKey};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::ApiError;

/// Path of the page for customers. The token of an order follows it.
pub const TRACKING_PATH: &str = "/track";

/// Returns the key of the links, or `None` if `http.tracking` is off.
pub(super) async fn load_key(app: &App) -> Result<Option<&TrackingKey>, ApiError> {
    if !app.config.http.tracking {
        return Ok(None);
    }
    Ok(Some(app.orders.tracking.load_key(&app.core.db).await?))
}

#[derive(Deserialize)]
struct CreatedOrder {
    order_id: OrderId,
    created_at: DateTime<Utc>,
}

/// Adds the address of the page to the created order.
pub(super) fn add_link(app: &App, key: &TrackingKey, order: &mut Value) {
    let Ok(CreatedOrder { order_id: id, created_at }) = CreatedOrder::deserialize(&*order) else { return };
    if let Some(token) = key.issue_token(&TokenOrder { id, created_at }) {
        order["tracking_url"] = json!(app.config.http.public_address(&format!("{TRACKING_PATH}/{token}")));
    }
}
