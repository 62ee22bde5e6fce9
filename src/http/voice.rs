//! What a voice provider calls back: how a call ended, and which key was pressed.
//! `POST /api/v1/voice/{channel}/status|answer?message={id}`, form fields as Twilio sends them.
//!
//! Doubled, late and lost callbacks are harmless: a key is pressed for an offer that is live or not, and an offer nobody
//! says anything about lapses.

use axum::{
    Json, Router,
    body::Bytes,
    extract::{Path, Query, State, rejection::QueryRejection},
    http::{HeaderMap, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::post,
};
use jobs::OrderId;
use reqwest::Url;
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

use super::error::ApiError;
use crate::{
    app::App,
    notifications::{
        channel::voice::{Event, Voice},
        outbox,
    },
    orders::{Refusal, act::act, actions, store::ChangeError},
    reservation,
};

/// Ends of a call in which nobody heard the offer.
const UNHEARD: [&str; 4] = ["busy", "no-answer", "failed", "canceled"];

pub fn routes() -> Router<App> {
    Router::new().route("/{channel}/status", post(status)).route("/{channel}/answer", post(answer))
}

#[derive(Debug, Deserialize)]
struct About {
    message: Uuid,
}

/// A callback whose signature holds, and the offer its call was about.
struct Called<'a> {
    voice: &'a Voice,
    fields: Vec<(String, String)>,
    /// `None`: the call was about something else.
    offer: Option<(OrderId, String, Uuid)>,
}

impl Called<'_> {
    fn field(&self, name: &str) -> &str {
        self.fields.iter().find(|(field, _)| field == name).map_or("", |(_, value)| value)
    }
}

async fn called<'a>(
    app: &'a App,
    event: Event,
    channel: &str,
    about: Result<Query<About>, QueryRejection>,
    headers: &HeaderMap,
    bytes: &Bytes,
) -> Result<Called<'a>, ApiError> {
    let voice = app.channels.voice(channel).ok_or(ApiError::NoSuchChannel)?;
    let Query(About { message }) = about.map_err(|_| ApiError::Invalid("message must be a message's id".to_owned()))?;
    let fields = fields(bytes)?;
    let signature = headers.get("x-twilio-signature").and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !voice.verifies(event, message, &fields, signature) {
        return Err(ApiError::BadSignature);
    }
    let offer = outbox::offer_of(&app.db, channel, message).await?;
    let offer = offer.and_then(|(order, driver, offer)| Some((order.parse().ok()?, driver, offer)));
    Ok(Called { voice, fields, offer })
}

fn fields(bytes: &Bytes) -> Result<Vec<(String, String)>, ApiError> {
    let text = std::str::from_utf8(bytes).map_err(|_| ApiError::Malformed("the body is not a form".to_owned()))?;
    let mut url = Url::parse("form:?").expect("a URL");
    url.set_query(Some(text));
    Ok(url.query_pairs().into_owned().collect())
}

async fn status(
    State(app): State<App>,
    Path(channel): Path<String>,
    about: Result<Query<About>, QueryRejection>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Response, ApiError> {
    let called = called(&app, Event::Status, &channel, about, &headers, &bytes).await?;
    let status = called.field("CallStatus");
    if let Some((order, _, offer)) = called.offer.as_ref().filter(|_| UNHEARD.contains(&status)) {
        let why = format!("the call ended as {status}");
        act(&app, order, |s| actions::withdraw_offer(s, *offer, &why)).await?;
    }
    Ok(Json(json!({ "status": "ok" })).into_response())
}

async fn answer(
    State(app): State<App>,
    Path(channel): Path<String>,
    about: Result<Query<About>, QueryRejection>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Response, ApiError> {
    let called = called(&app, Event::Answer, &channel, about, &headers, &bytes).await?;
    let said = match (&called.offer, called.field("Digits")) {
        (None, _) => "This call is about no offer.",
        (Some((order, driver, offer)), "1") => match reservation::accept(&app, order, driver, *offer).await {
            Ok(_) => "The job is yours.",
            Err(ChangeError::Refused(refusal)) => refused(&refusal),
            Err(error) => return Err(error.into()),
        },
        (Some((order, driver, offer)), "2") => {
            let by_phone = Some("by phone".to_owned());
            match act(&app, order, |s| actions::decline(s, driver, *offer, by_phone.clone())).await {
                Ok(_) => "You have declined.",
                Err(ChangeError::Refused(refusal)) => refused(&refusal),
                Err(error) => return Err(error.into()),
            }
        }
        _ => "That is neither 1 nor 2. Good bye.",
    };
    Ok(([(CONTENT_TYPE, "text/xml")], called.voice.reply(said)).into_response())
}

fn refused(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::AlreadyAssigned | Refusal::ReservationInProgress => "Another driver was quicker.",
        Refusal::OfferExpired => "This offer has expired.",
        Refusal::DriverBusy => "You have another job.",
        _ => "This offer is no longer open.",
    }
}
