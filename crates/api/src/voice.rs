//! Callbacks of a provider of phone calls: how a call ended, and which key the driver pressed. `POST
//! /api/v1/voice/{channel}/status|answer?message={id}`, with form fields as Twilio sends them.
//!
//! Repeated, late and lost callbacks are harmless. A key press counts only while the offer is live, and an unanswered
//! offer expires.

use axum::{
    Json,
    body::Bytes,
    extract::{Path, Query, State, rejection::QueryRejection},
    http::{HeaderMap, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use jobs::OrderId;
use model::texts::TextKey;
use reqwest::Url;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

use super::{body::FormBody, error::ApiError, openapi::CallErrors};
use app::App;
use model::{
    actor::Actor,
    decide::{OrderRefusal, actions},
    ids::{DriverId, OfferId},
    order::Snapshot,
};
use notify::{
    channels::voice::{CallEvent, VoiceChannel},
    outbox,
};
use orders::{accept, change::ChangeError, seen::Basis};

/// Values of `CallStatus` that end a call. By then the driver has pressed a key or will not answer by this call.
const ENDS: [&str; 5] = ["completed", "busy", "no-answer", "failed", "canceled"];

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(record_call_status)).routes(routes!(answer_call))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(names("channel"), parameter_in = Path)]
struct ChannelPath(
    /// The name of the voice channel in config.toml.
    #[param(pattern = "^[A-Za-z0-9_-]{1,64}$", example = "calls")]
    String,
);

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct MessageQuery {
    /// The message that the call delivers.
    message: Uuid,
}

/// A callback with a valid signature, and the offer of its call.
struct VerifiedCallback<'a> {
    voice: &'a VoiceChannel,
    fields: Vec<(String, String)>,
    /// `None` if the call was not about an offer.
    offer: Option<CalledOffer>,
}

/// The offer that a call was about.
struct CalledOffer {
    outbox_id: i64,
    order: OrderId,
    driver: DriverId,
    offer: OfferId,
    /// Number of calls made. A second call may find the line busy because of the first.
    tries: i32,
}

impl VerifiedCallback<'_> {
    fn form_field(&self, name: &str) -> &str {
        self.fields.iter().find(|(field, _)| field == name).map_or("", |(_, value)| value)
    }
}

async fn find_call<'a>(
    app: &'a App,
    event: CallEvent,
    channel: &str,
    about: Result<Query<MessageQuery>, QueryRejection>,
    headers: &HeaderMap,
    body: &FormBody,
) -> Result<VerifiedCallback<'a>, ApiError> {
    // An unknown channel gets the same error as a wrong signature, so a stranger cannot find out which channels exist.
    let voice = app.notify.channels.voice_channel(channel);
    let voice =
        voice.ok_or_else(|| ApiError::BadSignature("no voice channel with this name in config.toml".to_owned()))?;
    let Query(MessageQuery { message }) =
        about.map_err(|_| ApiError::invalid_parameter("message", "message must be the id of a message"))?;
    let fields = parse_form(&body.bytes)?;
    let signature = headers.get("x-twilio-signature").and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !voice.verifies_signature(event, message, &fields, signature) {
        return Err(ApiError::BadSignature(format!("no valid signature of the provider of channel {channel}")));
    }
    if !body.is_form {
        return Err(ApiError::NotForm);
    }
    let offer = outbox::offer_of(&app.core.db, channel, message).await?;
    let offer = offer.and_then(|row| {
        let order = row.order_id.parse().ok()?;
        Some(CalledOffer { outbox_id: row.id, order, driver: row.driver_id, offer: row.offer_id, tries: row.attempts })
    });
    Ok(VerifiedCallback { voice, fields, offer })
}

fn parse_form(bytes: &Bytes) -> Result<Vec<(String, String)>, ApiError> {
    let text = std::str::from_utf8(bytes).map_err(|_| ApiError::Malformed("the body is not a form".to_owned()))?;
    let mut url = Url::parse("form:?").expect("a URL");
    url.set_query(Some(text));
    let fields: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    if fields.iter().any(|(name, value)| name.contains('\0') || value.contains('\0')) {
        return Err(ApiError::Malformed("the body must not contain the character U+0000".to_owned()));
    }
    Ok(fields)
}

#[derive(Debug, Serialize, ToSchema)]
struct CallReceipt {
    /// Always `ok`.
    status: &'static str,
}

/// Receives the end of a phone call from the provider of calls.
///
/// The request is signed as Twilio signs requests.
#[utoipa::path(post, path = "/{channel}/status", tag = "callbacks", security(()),
    extensions(("x-audience" = json!("voice_provider"))), params(ChannelPath, MessageQuery),
    request_body(content = Object, content_type = "application/x-www-form-urlencoded",
        description = "the form fields of the provider, including CallStatus", example = json!({ "CallStatus": "busy" })),
    responses((status = 200, description = "success", body = CallReceipt, example = json!({ "status": "ok" })), CallErrors))]
async fn record_call_status(
    State(app): State<App>,
    Path(ChannelPath(channel)): Path<ChannelPath>,
    about: Result<Query<MessageQuery>, QueryRejection>,
    headers: HeaderMap,
    body: FormBody,
) -> Result<Json<CallReceipt>, ApiError> {
    let called = find_call(&app, CallEvent::Status, &channel, about, &headers, &body).await?;
    let status = called.form_field("CallStatus");
    let ended = called.offer.as_ref().filter(|call| ENDS.contains(&status) && call.tries <= 1);
    if let Some(call) = ended {
        outbox::mark_unreachable(&app.core.db, call.outbox_id).await?;
    }
    if let Some(call) = ended
        // If the offer also reached the driver over another channel, the driver may still answer there.
        && outbox::undelivered_offer(&app.core.db, call.outbox_id).await?.is_some()
    {
        let why = if status == "completed" {
            "the call ended without an answer"
        } else {
            &format!("the call ended as {status}")
        };
        let decide = |s: &Snapshot| actions::withdraw_offer(s, call.offer, why);
        let withdrawn = app.orders.change(&call.order, Basis::Offer(call.offer), decide).await?;
        withdrawn.effects.run(&app.orders).await;
    }
    Ok(Json(CallReceipt { status: "ok" }))
}

/// Receives the key that a driver pressed during a call.
///
/// 1 accepts the offer and 2 declines it. The request is signed as Twilio signs requests. The answer is an XML document
/// with the text that the provider reads out.
#[utoipa::path(post, path = "/{channel}/answer", tag = "callbacks", security(()),
    extensions(("x-audience" = json!("voice_provider"))), params(ChannelPath, MessageQuery),
    request_body(content = Object, content_type = "application/x-www-form-urlencoded",
        description = "the form fields of the provider, including Digits", example = json!({ "Digits": "1" })),
    responses((status = 200, description = "success", body = String, content_type = "text/xml"), CallErrors))]
async fn answer_call(
    State(app): State<App>,
    Path(ChannelPath(channel)): Path<ChannelPath>,
    about: Result<Query<MessageQuery>, QueryRejection>,
    headers: HeaderMap,
    body: FormBody,
) -> Result<Response, ApiError> {
    let called = find_call(&app, CallEvent::Answer, &channel, about, &headers, &body).await?;
    let said = match (&called.offer, called.form_field("Digits")) {
        (None, _) => TextKey::VoiceNoOffer,
        (Some(call), "1") => {
            let by = Actor::for_driver(&call.driver);
            match accept::accept_offer(&app.orders, &call.order, &call.driver, call.offer, &by).await {
                Ok(_) => TextKey::VoiceAccepted,
                Err(ChangeError::Refused(refusal)) => refusal_text(&refusal),
                Err(error) => return Err(error.into()),
            }
        }
        (Some(call), "2") => {
            let by_phone = Some("by phone".to_owned());
            let decide = |s: &Snapshot| actions::decline_offer(s, &call.driver, call.offer, by_phone.clone());
            match app.orders.change(&call.order, Basis::Offer(call.offer), decide).await {
                Ok(declined) => {
                    declined.effects.run(&app.orders).await;
                    TextKey::VoiceDeclined
                }
                Err(ChangeError::Refused(refusal)) => refusal_text(&refusal),
                Err(error) => return Err(error.into()),
            }
        }
        _ => TextKey::VoiceWrongKey,
    };
    Ok(([(CONTENT_TYPE, "text/xml")], called.voice.reply_document(said)).into_response())
}

fn refusal_text(refusal: &OrderRefusal) -> TextKey {
    match refusal {
        OrderRefusal::AlreadyAssigned | OrderRefusal::ReservationInProgress => TextKey::TripTaken,
        OrderRefusal::OfferExpired => TextKey::VoiceOfferExpired,
        OrderRefusal::DriverBusy => TextKey::VoiceDriverBusy,
        _ => TextKey::VoiceOfferClosed,
    }
}
