//! Tries to deliver events to a webhook endpoint.

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema, openapi::Object};
use uuid::Uuid;

use super::{
    OWNERS, actions,
    requests::{EndpointPath, owner_of},
};
use crate::{
    auth::ApiCaller,
    bindings::{next_cursor, page_size, word_schema},
    error::ApiError,
    openapi::CallErrors,
};
use app::App;
use model::messages::OutboxState;
use notify::endpoints::deliveries::{self, DeliveryCursor, EndpointDelivery};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DeliveryQuery {
    /// The `next_cursor` of the previous page.
    #[param(pattern = "^[0-9]{1,19}-[0-9]{1,10}$")]
    cursor: Option<String>,
    /// Maximum number of tries per page.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u32>,
}

fn message_state_schema() -> Object {
    word_schema(["pending", "delivered", "expired", "dead"])
}

/// A try to deliver an event.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = EndpointDelivery)]
pub(super) struct DeliveryView {
    /// Time of the try.
    at: DateTime<Utc>,
    /// Number of the try, from 1.
    attempt_no: i32,
    request: DeliveryRequestView,
    answer: DeliveryAnswerView,
    /// State of the event now: pending events are tried again.
    #[schema(schema_with = message_state_schema)]
    state: OutboxState,
}

/// Request of a try.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = EndpointDeliveryRequest)]
pub(super) struct DeliveryRequestView {
    url: String,
    /// Id of the event, as in `webhook-id`.
    id: Uuid,
    #[serde(rename = "type")]
    event: String,
    /// Body of the request. The contents of the order are not stored, so they are missing here.
    #[schema(value_type = Object)]
    body: Value,
}

/// Answer to a try.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = EndpointDeliveryAnswer)]
pub(super) struct DeliveryAnswerView {
    /// Whether the receiver answered with a 2xx.
    accepted: bool,
    /// The answer, or the reason that there was none. Null if the event was accepted.
    #[schema(required)]
    error: Option<String>,
}

impl DeliveryView {
    fn new(url: &str, delivery: EndpointDelivery) -> Self {
        let request = DeliveryRequestView {
            url: url.to_owned(),
            id: delivery.message_id,
            event: delivery.event_type().to_owned(),
            body: delivery.body(),
        };
        let answer = DeliveryAnswerView { accepted: delivery.error.is_none(), error: delivery.error };
        Self { at: delivery.at, attempt_no: delivery.attempt_no, request, answer, state: delivery.state }
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = EndpointDeliveryPage)]
pub(super) struct DeliveryPage {
    deliveries: Vec<DeliveryView>,
    /// Value of `cursor` for the next page; null on the last page.
    #[schema(required)]
    next_cursor: Option<String>,
}

fn example_delivery() -> Value {
    json!({
        "at": "2026-01-09T08:00:41.530Z", "attempt_no": 1,
        "request": {
            "url": "https://shop.example.com/dispatchq", "id": "019ba1c0-0000-7000-8000-000000000002",
            "type": "endpoint.test",
            "body": { "id": "019ba1c0-0000-7000-8000-000000000002", "type": "endpoint.test",
                      "timestamp": "2026-01-09T08:00:41.518Z", "version": 1,
                      "data": { "endpoint_id": "01937c3e-8f00-7000-8000-000000000001", "producer": "shop" } },
        },
        "answer": { "accepted": false, "error": "the receiver answered 503" }, "state": "pending",
    })
}

/// Lists the tries to deliver events to a webhook endpoint, newest event first, page by page.
///
/// Tries are kept as long as the order of the event.
#[utoipa::path(get, path = "/{id}/deliveries", tag = "webhook-endpoints",
    params(EndpointPath, DeliveryQuery), extensions(("x-roles" = json!(OWNERS))),
    responses(
        (status = 200, description = "success", body = DeliveryPage,
         example = json!({ "deliveries": [example_delivery()], "next_cursor": null })),
        CallErrors,
    ))]
pub(super) async fn list_webhook_deliveries(
    State(app): State<App>,
    caller: ApiCaller,
    EndpointPath(id): EndpointPath,
    wanted: Result<Query<DeliveryQuery>, QueryRejection>,
) -> Result<Json<DeliveryPage>, ApiError> {
    caller.require_role(&OWNERS)?;
    let Query(DeliveryQuery { cursor, limit }) = wanted?;
    let limit = page_size(limit)?;
    let not_given = |_| ApiError::invalid_parameter("cursor", "cursor must be `next_cursor` of an answer");
    let cursor = cursor.map(|text| text.parse::<DeliveryCursor>()).transpose().map_err(not_given)?;
    let (id, endpoint) = actions::find(&app, &id, owner_of(&caller.actor())).await?;
    let tries = deliveries::list_page(&app.core.db, id, cursor, i64::from(limit)).await?;
    let next_cursor = next_cursor(&tries, limit, |delivery| delivery.cursor().to_string());
    let deliveries = tries.into_iter().map(|delivery| DeliveryView::new(&endpoint.url, delivery)).collect();
    Ok(Json(DeliveryPage { deliveries, next_cursor }))
}
