//! Callbacks of partners: `POST /api/v1/callbacks/{partner}`, as docs/PARTNER.md describes them.
//!
//! A callback has a timestamp and a signature over the raw body, by the Standard Webhooks rules. It is stored together
//! with the change it causes, or before it. A stored callback is answered 200 and is not lost, even if processing
//! fails. A repeated event changes nothing.

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
use orders::{order_store::inbox::CallbackState, timer_sending};
use partner::{callback, inbox};
use queue::Outcome;

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(receive_callback))
}

/// Result of a callback.
#[derive(Debug, Serialize, ToSchema)]
struct CallbackReceipt {
    /// `processed`; `stored`: it will be processed later; `unmatched`: no order matches; `ignored`: its type is
    /// unknown, so it changes nothing. A repeated event gets the state of the first one.
    status: String,
}

/// Receives an event about a booking from a partner.
///
/// The request is signed as docs/PARTNER.md describes. The event is stored before it has an effect. A repeated event
/// changes nothing.
#[utoipa::path(post, path = "/{partner}", tag = "callbacks", security(()),
    extensions(("x-audience" = json!("partner"))),
    params(("partner" = String, Path, description = "the partner's name in config.toml", pattern = "^[a-z0-9_]{1,32}$",
            example = "bbd")),
    request_body(content = CallbackBody,
        example = json!({ "event_id": "EVT-1", "type": "job_id_assigned", "booking_id": "BK-1", "reference": "ORD-1:1",
                          "job_id": "JOB-1" })),
    responses(
        (status = 200, description = "success", body = CallbackReceipt, example = json!({ "status": "processed" })),
        CallErrors,
    ))]
async fn receive_callback(
    State(app): State<App>,
    Path(name): Path<PartnerName>,
    headers: HeaderMap,
    WholeBody(bytes): WholeBody,
) -> Result<Json<CallbackReceipt>, ApiError> {
    // An unknown partner gets the same error as a wrong signature, so a stranger cannot find out which partners exist.
    let partner = app.partners.registry.get(&name);
    let partner =
        partner.ok_or_else(|| ApiError::BadSignature("no partner with this name in config.toml".to_owned()))?;
    if !partner.verifies_callback(&bytes, &headers) {
        return Err(ApiError::BadSignature(format!("no valid signature of partner {name}, or too old")));
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
            "Stored and ignored a partner's event with a type that this version does not know."
        );
        return Ok(Json(CallbackReceipt { status: "ignored".to_owned() }));
    }
    if let Some(arrival) = callback::process_arrival(&app.partners, partner, &body, &raw).await {
        crash::reach_point("callback", "enqueues");
        if let Outcome::Done { then, superseded } = arrival.outcome {
            timer_sending::send_jobs(&app.orders, &arrival.order, then, superseded).await;
        }
        return Ok(Json(CallbackReceipt { status: "processed".to_owned() }));
    }
    let row = inbox::store_callback(&app.orders.rows, &name, &body, &raw).await?;
    let order = match (&row.order_id, row.state) {
        (Some(order), CallbackState::Pending) => order.parse()?,
        (known, state) => {
            // The event came before, perhaps in this request if the answer of its commit was lost. Its timers may not
            // have been sent.
            if let (Some(order), false) = (known, row.is_new) {
                timer_sending::resend_timers(&app.orders, &order.parse()?).await;
            }
            return Ok(Json(CallbackReceipt { status: state.as_str().to_owned() }));
        }
    };
    crash::reach_point("callback", "stored");
    // For a repeated event, the content stored first counts.
    let acted = if row.is_new {
        callback::process_body(&app.partners, &order, row.id, &name, &body).await
    } else {
        callback::process_callback(&app.partners, &order, row.id).await
    };
    let (status, follow_ups, superseded) = match acted {
        Outcome::Done { then, superseded } => ("processed", then, superseded),
        // The event is stored. Its job processes it later.
        Outcome::Snooze { .. } | Outcome::Park(_) | Outcome::Retry(_) | Outcome::Dead(_) => {
            ("stored", vec![callback_timer(&order, row.id, row.received_at, row.received_at).job], Vec::new())
        }
    };
    crash::reach_point("callback", "enqueues");
    timer_sending::send_jobs(&app.orders, &order, follow_ups, superseded).await;
    Ok(Json(CallbackReceipt { status: status.to_owned() }))
}
