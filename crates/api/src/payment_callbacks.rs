//! What the payment service calls: `POST /api/v1/payment-callbacks`, as docs/PAYMENTS.md describes it.
//!
//! Signed by the Standard Webhooks rules over the raw body, with a timestamp. Acted on within the request: what is answered 200 is
//! written, and a service whose request failed sends it again. The same event again changes nothing.

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
use orders::{commit::ChangeOutcome, update};

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(receive_refund_callback))
}

/// What every callback has, whatever else is in it.
#[derive(Debug, Deserialize)]
struct CallbackHead {
    #[serde(rename = "type")]
    kind: RefundCallbackKind,
}

/// What the payment service says of a refund. Fields we do not know are the service's business.
#[derive(Debug, Deserialize, ToSchema)]
struct RefundCallback {
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    kind: RefundCallbackKind,
    #[schema(min_length = 1, max_length = 128)]
    refund_id: String,
    /// The order, as we gave it when asking.
    #[schema(value_type = String)]
    reference: OrderId,
    /// Why it failed.
    #[schema(max_length = 500)]
    reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
enum RefundCallbackKind {
    #[serde(rename = "refund.completed")]
    Completed,
    #[serde(rename = "refund.failed")]
    Failed,
    /// A word this version does not know: of no effect.
    #[serde(other)]
    Unknown,
}

/// What became of a callback of the payment service.
#[derive(Debug, Serialize, ToSchema)]
struct RefundCallbackReceipt {
    /// processed, or ignored: it changed nothing
    status: String,
}

/// Receives what the payment service says of a refund; signed, see docs/PAYMENTS.md.
///
/// A completed refund makes its order REFUNDED, one that failed is left to a person. Only the refund id that the service returned
/// counts; another id is recorded and answered `ignored`. The same event again changes nothing.
#[utoipa::path(post, path = "/", tag = "callbacks", security(()),
    request_body(content = RefundCallback,
        example = json!({ "type": "refund.completed", "refund_id": "RF-1", "reference": "ORD-1" })),
    responses(
        (status = 200, description = "done", body = RefundCallbackReceipt, example = json!({ "status": "processed" })),
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
        return Err(ApiError::BadSignature("not signed by the payment service, or too long ago".to_owned()));
    }
    let CallbackHead { kind } = json::read_json(&bytes)?;
    if kind == RefundCallbackKind::Unknown {
        // It need not be about a refund, nor about an order of ours.
        tracing::info!("A callback of the payment service has a type that this version does not know: it is ignored.");
        return Ok(Json(RefundCallbackReceipt::new("ignored")));
    }
    let callback: RefundCallback = json::read_json(&bytes)?;
    if let Some(problem) = callback.find_problem() {
        return Err(ApiError::Invalid(problem));
    }
    let changed = update::update_order(&app.orders, &callback.reference, |s| callback.decide(s)).await?;
    let refund = changed.snapshot().refund.as_ref();
    let is_settled = refund.is_some_and(|refund| refund.refund_id.as_deref() == Some(&callback.refund_id));
    let status = match changed {
        ChangeOutcome::Yes(_) if is_settled => "processed",
        // Another refund id is recorded and settles nothing.
        ChangeOutcome::Yes(_) | ChangeOutcome::No(_) => "ignored",
    };
    Ok(Json(RefundCallbackReceipt::new(status)))
}

impl RefundCallbackReceipt {
    fn new(status: &str) -> Self {
        Self { status: status.to_owned() }
    }
}

impl RefundCallback {
    /// What cannot be kept of it, if anything.
    fn find_problem(&self) -> Option<String> {
        if let Some(problem) = input::find_foreign_id_problem(&self.refund_id) {
            return Some(format!("refund_id {problem}"));
        }
        let problem = plain_text::find_problem(self.reason.as_deref().unwrap_or_default(), input::REASON.most);
        problem.map(|problem| format!("reason {problem}"))
    }

    /// Decides what the callback changes. A failure does nothing to a refund that people have ended.
    fn decide(&self, s: &Snapshot) -> Decision {
        let report = match self.kind {
            RefundCallbackKind::Completed => RefundReport::Completed,
            RefundCallbackKind::Failed => RefundReport::Failed(self.reason.as_deref().unwrap_or("it failed")),
            RefundCallbackKind::Unknown => return Decision::Unchanged,
        };
        money::take_refund_report(s, &self.refund_id, report)
    }
}
