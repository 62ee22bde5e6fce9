//! Callbacks of the payment service: `POST /api/v1/payment-callbacks`, as docs/PAYMENTS.md describes them.
//!
//! A callback has a timestamp and a signature over the raw body, by the Standard Webhooks rules. It is processed within
//! the request: an answer 200 means that the change is stored. The service repeats a callback that fails. A repeated
//! event changes nothing.

use axum::{Json, extract::State, http::HeaderMap};
use jobs::OrderId;
use model::{
    decide::money::{self, RefundReport},
    input,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{body::WholeBody, error::ApiError, json, openapi::CallErrors};
use app::App;
use model::{decide::Decision, order::Snapshot, plain_text};
use orders::seen::Basis;

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(receive_refund_callback))
}

/// Members that every callback has.
#[derive(Debug, Deserialize)]
struct CallbackHead {
    #[serde(rename = "type")]
    kind: RefundCallbackKind,
}

/// Report of the payment service about a refund. Unknown members are ignored.
#[derive(Debug, Deserialize, ToSchema)]
struct RefundCallback {
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    kind: RefundCallbackKind,
    #[schema(min_length = 1, max_length = 128)]
    refund_id: String,
    /// Id of the order, as the refund request contained it.
    #[schema(value_type = String)]
    reference: OrderId,
    /// Cause of the failure.
    #[schema(max_length = 500)]
    reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
enum RefundCallbackKind {
    #[serde(rename = "refund.completed")]
    Completed,
    #[serde(rename = "refund.failed")]
    Failed,
    /// A type that this version does not know. It has no effect.
    #[serde(other)]
    Unknown,
}

/// Result of a callback of the payment service.
#[derive(Debug, Serialize, ToSchema)]
struct RefundCallbackReceipt {
    /// `processed`, or `ignored` if the callback settled nothing.
    status: String,
}

/// Receives a report about a refund from the payment service.
///
/// The request is signed as docs/PAYMENTS.md describes. A completed refund makes its order REFUNDED. After a failed
/// refund a person must decide. Only the refund id that the service returned is accepted; another id is recorded and
/// answered `ignored`. A repeated event changes nothing.
#[utoipa::path(post, path = "/", tag = "callbacks", security(()),
    extensions(("x-audience" = json!("payment_service"))),
    request_body(content = RefundCallback,
        example = json!({ "type": "refund.completed", "refund_id": "RF-1", "reference": "ORD-1" })),
    responses(
        (status = 200, description = "success", body = RefundCallbackReceipt, example = json!({ "status": "processed" })),
        CallErrors,
    ))]
async fn receive_refund_callback(
    State(app): State<App>,
    headers: HeaderMap,
    WholeBody(bytes): WholeBody,
) -> Result<Json<RefundCallbackReceipt>, ApiError> {
    let payments = app.orders.payments.as_ref();
    let payments = payments.ok_or_else(|| ApiError::BadSignature("no [payments] url in config.toml".to_owned()))?;
    if !payments.verifies_callback(&bytes, &headers) {
        return Err(ApiError::BadSignature("no valid signature of the payment service, or too old".to_owned()));
    }
    let CallbackHead { kind } = json::read_json(&bytes)?;
    if kind == RefundCallbackKind::Unknown {
        // The callback may be about something other than a refund or an order.
        tracing::info!("Ignored a callback of the payment service with a type that this version does not know.");
        return Ok(Json(RefundCallbackReceipt::new("ignored")));
    }
    let callback: RefundCallback = json::read_json(&bytes)?;
    if let Some(problem) = callback.find_problem() {
        return Err(ApiError::Invalid(problem));
    }
    let changed = app.orders.change(&callback.reference, Basis::Fresh, |s| callback.decide(s)).await?;
    let refund = changed.after.refund.as_ref();
    let is_settled = refund.is_some_and(|refund| refund.refund_id.as_deref() == Some(&callback.refund_id));
    // Another refund id is recorded and settles nothing.
    let status = if changed.is_written() && is_settled { "processed" } else { "ignored" };
    changed.effects.run(&app.orders).await;
    Ok(Json(RefundCallbackReceipt::new(status)))
}

impl RefundCallbackReceipt {
    fn new(status: &str) -> Self {
        Self { status: status.to_owned() }
    }
}

impl RefundCallback {
    /// Returns the problem that prevents storing the callback, if there is one.
    fn find_problem(&self) -> Option<String> {
        if let Some(problem) = input::find_foreign_id_problem(&self.refund_id) {
            return Some(format!("refund_id {problem}"));
        }
        let problem = plain_text::find_problem(self.reason.as_deref().unwrap_or_default(), input::REASON.most);
        problem.map(|problem| format!("reason {problem}"))
    }

    /// Decides on the change. A failure does not affect a refund that a person has finished.
    fn decide(&self, s: &Snapshot) -> Decision {
        let report = match self.kind {
            RefundCallbackKind::Completed => RefundReport::Completed,
            RefundCallbackKind::Failed => RefundReport::Failed(self.reason.as_deref().unwrap_or("it failed")),
            RefundCallbackKind::Unknown => return Decision::Unchanged,
        };
        money::take_refund_report(s, &self.refund_id, report)
    }
}
