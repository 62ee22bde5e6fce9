//! What partners call: `POST /api/v1/callbacks/{partner}`, as docs/PARTNER.md describes it.
//!
//! Signed by the Standard Webhooks rules over the raw body, with a timestamp. Stored with the change it leads to, or first, and acted
//! on after: what was stored is answered 200, whatever comes of it, and is not lost; the same event again changes nothing.

use axum::{
    Json,
    extract::{Path, State},
    http::HeaderMap,
};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{body::WholeBody, error::ApiError, json, openapi::CallErrors};
use app::App;
use foundation::crash;
use model::{decide::timers::callback_timer, ids::PartnerName, partner::observation::CallbackBody};
use orders::{order_store::inbox::CallbackState, update};
use partner::{callback, inbox};
use queue::Outcome;

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(receive_callback))
}

/// What became of a callback.
#[derive(Debug, Serialize, ToSchema)]
struct CallbackReceipt {
    /// processed, stored (it will be processed), unmatched (no order is known), ignored (its type is not known, so it changes
    /// nothing), or the state of the same event before
    status: String,
}

/// Receives what a partner says of a booking; signed, see docs/PARTNER.md.
///
/// The event is stored before anything comes of it. The same event again changes nothing.
#[utoipa::path(post, path = "/{partner}", tag = "callbacks", security(()),
    params(("partner" = String, Path, description = "the partner's name in config.toml", pattern = "^[a-z0-9_]{1,32}$",
            example = "bbd")),
    request_body(content = CallbackBody,
        example = json!({ "event_id": "EVT-1", "type": "job_id_assigned", "booking_id": "BK-1", "reference": "ORD-1:1",
                          "job_id": "JOB-1" })),
    responses(
        (status = 200, description = "done", body = CallbackReceipt, example = json!({ "status": "processed" })),
        CallErrors,
    ))]
async fn receive_callback(
    State(app): State<App>,
    Path(name): Path<PartnerName>,
    headers: HeaderMap,
    WholeBody(bytes): WholeBody,
) -> Result<Json<CallbackReceipt>, ApiError> {
    // A stranger does not learn which partners there are.
    let partner = app.partners.registry.get(&name);
    let partner = partner.ok_or_else(|| ApiError::BadSignature("no partner of this name in config.toml".to_owned()))?;
    if !partner.verifies_callback(&bytes, &headers) {
        return Err(ApiError::BadSignature(format!("not signed by partner {name}, or too long ago")));
    }
    let raw: Value = json::read_json(&bytes)?;
    let body: CallbackBody = json::read_json(&bytes)?;
    if let Some(problem) = body.find_problem() {
        return Err(problem.into());
    }
    if body.is_unknown() {
        let row = inbox::store_unknown(&app.orders.rows, &name, &body, &raw).await?;
        tracing::info!(
            partner = %name,
            callback.id = row.id,
            "A partner sent an event of a type that this version does not know: it is stored and ignored."
        );
        return Ok(Json(CallbackReceipt { status: "ignored".to_owned() }));
    }
    if let Some(changed) = callback::process_arrival(&app.partners, partner, &body, &raw).await {
        crash::reach_point("callback", "enqueues");
        let order = changed.snapshot().order.id.clone();
        if let Outcome::Done { then, superseded } = changed.into_job_outcome() {
            update::send_jobs(&app.orders, &order, then, superseded).await;
        }
        return Ok(Json(CallbackReceipt { status: "processed".to_owned() }));
    }
    let row = inbox::store_callback(&app.orders.rows, &name, &body, &raw).await?;
    let order = match (&row.order_id, row.state) {
        (Some(order), CallbackState::Pending) => order.parse()?,
        (known, state) => {
            // It came before, perhaps in this very request, which lost the answer of its commit: its timers may not be sent.
            if let (Some(order), false) = (known, row.is_new) {
                update::resend_timers(&app.orders, &order.parse()?).await;
            }
            return Ok(Json(CallbackReceipt { status: state.as_str().to_owned() }));
        }
    };
    crash::reach_point("callback", "stored");
    // Of an event that came before, what came first counts.
    let acted = if row.is_new {
        callback::process_body(&app.partners, &order, row.id, &name, &body).await
    } else {
        callback::process_callback(&app.partners, &order, row.id).await
    };
    let (status, follow_ups, superseded) = match acted {
        Outcome::Done { then, superseded } => ("processed", then, superseded),
        // It is kept; its job does what could not be done now.
        Outcome::Snooze { .. } | Outcome::Park(_) | Outcome::Retry(_) | Outcome::Dead(_) => {
            ("stored", vec![callback_timer(&order, row.id, row.received_at, row.received_at).job], Vec::new())
        }
    };
    crash::reach_point("callback", "enqueues");
    update::send_jobs(&app.orders, &order, follow_ups, superseded).await;
    Ok(Json(CallbackReceipt { status: status.to_owned() }))
}
