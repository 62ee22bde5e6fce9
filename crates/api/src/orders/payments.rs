//! Payment events and refunds of an order.

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header::WARNING},
    response::Response,
};
use model::input;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    super::{
        auth::ApiCaller,
        body::{JsonBody, OrderPath, RawBody},
        error::ApiError,
        idempotency::{self, IdempotencyHeader},
        openapi::{CallErrors, example_order},
    },
    PRODUCERS, as_response, bounded_text, change_order,
};
use accounts::api_keys::AccountRole;
use app::App;
use model::{decide::money, order::PaymentStatus, view::OrderView};

const REFUNDERS: [AccountRole; 1] = [AccountRole::Support];

#[derive(Debug, Deserialize, ToSchema)]
pub(super) struct PaymentEventRequest {
    /// The producer's id of the event. A repeated event changes nothing.
    #[schema(pattern = "^[!-~]([ -~]{0,126}[!-~])?$")]
    event_id: String,
    payment_status: PaymentStatus,
}

/// Records a payment event.
///
/// Once an order was PAID or SETTLEMENT, no later event removes a refund that is due. An unknown status is accepted:
/// the answer has a `Warning` header, and support is notified.
#[utoipa::path(post, path = "/{id}/payment", tag = "orders", params(OrderPath, IdempotencyHeader),
    extensions(("x-roles" = json!(PRODUCERS))),
    request_body(content = PaymentEventRequest, example = json!({ "event_id": "PAY-1", "payment_status": "SETTLEMENT" })),
    responses(
        (status = 200, description = "success", body = OrderView,
         headers(("Warning" = Option<String>, description = "the payment status is unknown; support is notified")),
         example = json!(example_order())),
        CallErrors,
    ))]
pub(super) async fn record_payment(
    State(app): State<App>,
    caller: ApiCaller,
    OrderPath(id): OrderPath,
    headers: HeaderMap,
    RawBody { bytes, value: event }: RawBody<PaymentEventRequest>,
) -> Result<Response, ApiError> {
    caller.require_role(&PRODUCERS)?;
    let event_id = &event.event_id;
    if let Some(problem) = input::EVENT_ID.find_problem(event_id) {
        return Err(ApiError::invalid_member("event_id", format!("event_id {problem}")));
    }
    let key = idempotency::idempotency_key(&headers)?;
    let work = async |_| {
        let actor = caller.actor();
        change_order(&app, &caller, &id, |s| money::record_payment(s, &actor, event_id, &event.payment_status)).await
    };
    let request: [&[u8]; 3] = [b"payment", id.as_str().as_bytes(), &bytes];
    let answer = idempotency::run_once(&app.core.db, &caller, key.as_deref(), &request, work).await?;
    Ok(with_warning(answer, &event.payment_status))
}

/// Adds a `Warning` header to the answer if the payment status is unknown.
pub(super) fn with_warning(mut answer: Response, word: &PaymentStatus) -> Response {
    if !word.is_known() && answer.status().is_success() {
        let known = PaymentStatus::KNOWN.map(|word| word.as_str().to_owned()).join(", ");
        let text =
            format!("299 dispatchq \"payment_status {word} is unknown; known are {known}; support is notified\"");
        answer.headers_mut().extend(HeaderValue::try_from(text).ok().map(|text| (WARNING, text)));
    }
    answer
}

#[derive(Debug, Deserialize, ToSchema)]
pub(super) struct RefundStep {
    action: RefundAction,
    #[schema(max_length = 500, pattern = "^[^\\u0000]*$")]
    note: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum RefundAction {
    Start,
    Done,
}

/// Records the progress of a refund.
#[utoipa::path(post, path = "/{id}/refund", tag = "orders", params(OrderPath), extensions(("x-roles" = json!(REFUNDERS))),
    request_body(content = RefundStep, example = json!({ "action": "start", "note": "asked the bank" })),
    responses((status = 200, description = "success", body = OrderView, example = json!(example_order())), CallErrors))]
pub(super) async fn change_refund(
    State(app): State<App>,
    caller: ApiCaller,
    OrderPath(id): OrderPath,
    JsonBody(step): JsonBody<RefundStep>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    caller.require_role(&REFUNDERS)?;
    let note = bounded_text("note", step.note)?;
    let actor = caller.actor();
    let changed = match step.action {
        RefundAction::Start => change_order(&app, &caller, &id, |s| money::start_refund(s, &actor, note.clone())).await,
        RefundAction::Done => change_order(&app, &caller, &id, |s| money::finish_refund(s, &actor, note.clone())).await,
    };
    as_response(changed)
}
