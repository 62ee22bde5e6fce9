//! Phone calls in the channel's language, through the REST API of Twilio or a compatible provider: `POST
//! /2010-04-01/Accounts/{account}/Calls.json` with `To`, `From`, `Twiml`, `StatusCallback`.
//!
//! The call announces the offer and asks for a key: 1 accepts, 2 declines. The provider reports the key and the call's
//! result to `callback_url`, signed with `X-Twilio-Signature`; see `api::voice`. An unanswered call ends the offer
//! early.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD};
use model::{
    messages::{MessageBody, MessageKind},
    texts::{Language, Placeholder, TextCatalog, TextKey},
};
use reqwest::{Url, header::CONTENT_TYPE};
use ring::hmac;
use uuid::Uuid;

use super::{DeliveryError, OutgoingMessage, host_of, post};
use foundation::config::error::{ConfigError, ensure_fits};

/// Time that the phone rings, in seconds.
const RING_SEC: &str = "25";

#[derive(Clone)]
pub struct VoiceChannel {
    /// Name of the channel in callback addresses.
    name: String,
    calls: Url,
    account: String,
    /// Token that authenticates calls and signs callbacks.
    token: String,
    /// Previous token, with which the provider may still sign callbacks during a change of tokens.
    token_previous: Option<String>,
    from: String,
    /// Public address of our API.
    callback: Url,
    /// Language tag sent to the provider, which has one voice per region.
    language: String,
    /// Language of the sentences.
    spoken: Language,
    texts: TextCatalog,
}

/// Event that the provider reports about a call: the pressed key, or the end of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEvent {
    Answer,
    Status,
}

impl CallEvent {
    pub fn url_path(self) -> &'static str {
        match self {
            Self::Answer => "answer",
            Self::Status => "status",
        }
    }
}

impl VoiceChannel {
    pub fn new(
        name: &str,
        base: &Url,
        account: &str,
        token: String,
        from: &str,
        callback: Url,
        language: &str,
    ) -> Result<Self, ConfigError> {
        let fits = !account.is_empty() && account.bytes().all(|b| b.is_ascii_alphanumeric());
        ensure_fits(fits, "account must be the account's id, as in AC0123456789abcdef0123456789abcdef")?;
        let spoken = Language::from_tag(language).ok_or_else(|| {
            let known = Language::ALL.map(Language::code).join(", ");
            ConfigError::new(format!("language '{language}' is not supported; use one of {known}, as in id-ID"))
        })?;
        let calls = base
            .join(&format!("/2010-04-01/Accounts/{account}/Calls.json"))
            .map_err(|error| ConfigError::new(format!("url is not valid: {error}")))?;
        Ok(Self {
            name: name.to_owned(),
            calls,
            account: account.to_owned(),
            token,
            token_previous: None,
            from: from.to_owned(),
            callback,
            language: language.to_owned(),
            spoken,
            texts: TextCatalog::default(),
        })
    }

    /// Also accepts callbacks signed with the previous token.
    #[must_use]
    pub fn with_previous_token(self, token_previous: Option<String>) -> Self {
        Self { token_previous, ..self }
    }

    /// Replaces the texts of the calls.
    #[must_use]
    pub fn with_texts(self, texts: TextCatalog) -> Self {
        Self { texts, ..self }
    }

    pub(super) async fn deliver(
        &self,
        client: &reqwest::Client,
        parcel: &OutgoingMessage<'_>,
    ) -> Result<(), DeliveryError> {
        let Some(phone) = parcel.phone else {
            return Err(DeliveryError::Gone(
                "the driver has no phone; add it with: dispatchq driver import (for staff: dispatchq user import)"
                    .to_owned(),
            ));
        };
        let status = self.callback_url(CallEvent::Status, parcel.id);
        let body = encode_form(&[
            ("To", phone),
            ("From", &self.from),
            ("Twiml", &self.call_script(parcel)),
            ("StatusCallback", status.as_str()),
            ("StatusCallbackEvent", "completed"),
            ("Timeout", RING_SEC),
        ]);
        let request = client
            .post(self.calls.clone())
            .basic_auth(&self.account, Some(&self.token))
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            // Twilio ignores this header, compatible providers use it. A repeated call is better than a lost one.
            .header("idempotency-key", parcel.id.to_string())
            .body(body);
        post::send_request(request).await
    }

    /// Returns the address that the provider calls with an event about this message.
    fn callback_url(&self, event: CallEvent, message: Uuid) -> Url {
        let mut url = self.callback.clone();
        url.set_path(&format!("{}/api/v1/voice/{}/{}", url.path().trim_end_matches('/'), self.name, event.url_path()));
        url.set_query(Some(&format!("message={message}")));
        url
    }

    fn call_script(&self, parcel: &OutgoingMessage<'_>) -> String {
        let news = match parcel.content.read_body() {
            MessageBody::Assigned(body) => self.name_service(TextKey::VoiceAssigned, &body.service_type),
            MessageBody::Unassigned(body) => self.name_service(TextKey::VoiceUnassigned, &body.service_type),
            MessageBody::Updated(body) => self.name_service(TextKey::VoiceUpdated, &body.service_type),
            MessageBody::Offer(offer) => {
                let km = self.spoken.format_km(offer.distance_m);
                let values = [(Placeholder::ServiceType, &*offer.service_type), (Placeholder::DistanceKm, km.as_str())];
                return self.offer_script(parcel, &self.texts.render(self.spoken, TextKey::VoiceOffer, &values));
            }
            MessageBody::DispatchFailed(alert) => self.name_order(alert.order_id.as_str()),
            MessageBody::ScheduledWithoutDriver(alert) => self.name_order(alert.order_id.as_str()),
            MessageBody::Reminder(alert) => self.name_order(alert.order_id.as_str()),
            // An offer of another version can still be answered.
            MessageBody::Unknown(content) if content.known_kind() == Some(MessageKind::Offer) => {
                return self.offer_script(parcel, &self.sentence(TextKey::VoiceOfferPlain));
            }
            MessageBody::Unknown(content) => self.sentence(match content.known_kind() {
                Some(MessageKind::Assigned) => TextKey::VoiceAssignedPlain,
                Some(MessageKind::Unassigned) => TextKey::VoiceUnassignedPlain,
                _ => TextKey::VoiceNews,
            }),
            _ => self.sentence(TextKey::VoiceNews),
        };
        format!("<Response>{}</Response>", self.say_element(&news))
    }

    /// Returns a script that announces the offer and asks for a key.
    fn offer_script(&self, parcel: &OutgoingMessage<'_>, offer: &str) -> String {
        let action = escape_xml(self.callback_url(CallEvent::Answer, parcel.id).as_str());
        format!(
            "<Response><Gather numDigits=\"1\" timeout=\"10\" action=\"{action}\" method=\"POST\">{}</Gather>{}</Response>",
            self.say_element(offer),
            self.say_element(&self.sentence(TextKey::VoiceNoKey))
        )
    }

    /// Renders a sentence without placeholders.
    fn sentence(&self, key: TextKey) -> String {
        self.texts.render(self.spoken, key, &[])
    }

    fn name_service(&self, key: TextKey, service_type: &str) -> String {
        self.texts.render(self.spoken, key, &[(Placeholder::ServiceType, service_type)])
    }

    fn name_order(&self, order: &str) -> String {
        self.texts.render(self.spoken, TextKey::VoiceDispatcherNeeded, &[(Placeholder::OrderId, order)])
    }

    /// Returns the XML element that speaks a text.
    fn say_element(&self, text: &str) -> String {
        format!("<Say language=\"{}\">{}</Say>", escape_xml(&self.language), escape_xml(text))
    }

    /// Returns the reply to a driver who has pressed a key.
    pub fn reply_document(&self, said: TextKey) -> String {
        let said = self.say_element(&self.sentence(said));
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?><Response>{said}</Response>")
    }

    /// Returns whether the provider signed this callback: HMAC-SHA1 with the account's token over our URL and the
    /// sorted fields. Source: Twilio, "Validating Signatures from Twilio".
    pub fn verifies_signature(
        &self,
        event: CallEvent,
        message: Uuid,
        fields: &[(String, String)],
        signature: &str,
    ) -> bool {
        let Ok(signature) = STANDARD.decode(signature) else { return false };
        let signed = self.signed_text(event, message, fields);
        std::iter::once(&self.token).chain(&self.token_previous).any(|token| {
            let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, token.as_bytes());
            hmac::verify(&key, signed.as_bytes(), &signature).is_ok()
        })
    }

    fn signed_text(&self, event: CallEvent, message: Uuid, fields: &[(String, String)]) -> String {
        let mut fields: Vec<_> = fields.iter().collect();
        fields.sort();
        let mut text = self.callback_url(event, message).to_string();
        text.extend(fields.into_iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]));
        text
    }

    /// Signs a callback as the provider does; for simulators and tests.
    pub fn sign_callback(&self, event: CallEvent, message: Uuid, fields: &[(String, String)]) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, self.token.as_bytes());
        STANDARD.encode(hmac::sign(&key, self.signed_text(event, message, fields).as_bytes()))
    }
}

/// Encodes fields as `application/x-www-form-urlencoded`.
fn encode_form(fields: &[(&str, &str)]) -> String {
    let mut url = Url::parse("form:?").expect("a URL");
    url.query_pairs_mut().extend_pairs(fields);
    url.query().unwrap_or_default().to_owned()
}

/// Escapes XML text and attribute values.
fn escape_xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl fmt::Debug for VoiceChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Voice({})", host_of(&self.calls))
    }
}

#[cfg(test)]
mod tests {
    use model::messages::MessageSubject;
    use serde_json::json;

    use super::*;
    use model::messages::{OFFER, StoredMessage};

    fn voice() -> VoiceChannel {
        let url = |text: &str| text.parse::<Url>().unwrap();
        let token = "12345".to_owned();
        let callback = url("https://dispatch.example.com/base");
        VoiceChannel::new("calls", &url("https://api.twilio.com"), "AC1", token, "+15550100", callback, "en-US")
            .unwrap()
    }

    fn offer(payload: serde_json::Value) -> StoredMessage {
        StoredMessage { kind: OFFER.to_owned(), payload }
    }

    fn order() -> MessageSubject {
        MessageSubject::Order("ORD-1".parse().unwrap())
    }

    fn parcel_of<'a>(subject: &'a MessageSubject, content: &'a StoredMessage) -> OutgoingMessage<'a> {
        OutgoingMessage { id: Uuid::nil(), subject, content, phone: None, email: None }
    }

    #[test]
    fn unreadable_offer_is_announced_in_short_form() {
        let script = voice().call_script(&parcel_of(&order(), &offer(json!({ "metres": 1234 }))));
        assert!(script.contains(">New job. Press 1 to take it, 2 to decline.</Say></Gather>"), "{script}");
    }

    #[test]
    fn call_announces_offer_and_asks_for_key() {
        let content = offer(json!({
            "event": "offer.created", "offer_id": Uuid::nil(), "order_id": "ORD-1", "driver_id": "D1",
            "service_type": "TOW&CO", "attempt_no": 1, "distance_m": 1234.0, "expires_at": "2030-01-01T08:00:00Z",
        }));
        assert_eq!(
            voice().call_script(&parcel_of(&order(), &content)),
            "<Response><Gather numDigits=\"1\" timeout=\"10\" action=\"https://dispatch.example.com/base/api/v1/voice/calls/\
             answer?message=00000000-0000-0000-0000-000000000000\" method=\"POST\"><Say language=\"en-US\">New TOW&amp;CO job, \
             1.2 kilometres from you. Press 1 to take it, 2 to decline.</Say></Gather><Say language=\"en-US\">No key was \
             pressed. Goodbye.</Say></Response>"
        );
    }

    #[test]
    fn signature_covers_url_and_fields() {
        let fields = vec![("Digits".to_owned(), "1".to_owned()), ("CallSid".to_owned(), "CA1".to_owned())];
        let signature = voice().sign_callback(CallEvent::Answer, Uuid::nil(), &fields);
        assert!(voice().verifies_signature(CallEvent::Answer, Uuid::nil(), &fields, &signature));
        assert!(!voice().verifies_signature(CallEvent::Status, Uuid::nil(), &fields, &signature));
        assert!(!voice().verifies_signature(CallEvent::Answer, Uuid::max(), &fields, &signature));
        assert!(!voice().verifies_signature(CallEvent::Answer, Uuid::nil(), &fields[..1], &signature));
        assert!(!voice().verifies_signature(CallEvent::Answer, Uuid::nil(), &fields, "no base64!"));
    }

    #[test]
    fn previous_token_verifies_during_the_changeover() {
        let signed_before = voice().sign_callback(CallEvent::Answer, Uuid::nil(), &[]);
        let changed = VoiceChannel { token: "67890".to_owned(), ..voice() };
        assert!(!changed.verifies_signature(CallEvent::Answer, Uuid::nil(), &[], &signed_before));
        let changing = changed.with_previous_token(Some("12345".to_owned()));
        assert!(changing.verifies_signature(CallEvent::Answer, Uuid::nil(), &[], &signed_before));
        assert!(changing.verifies_signature(
            CallEvent::Answer,
            Uuid::nil(),
            &[],
            &changing.sign_callback(CallEvent::Answer, Uuid::nil(), &[])
        ));
    }

    #[test]
    fn signature_matches_twilio_example() {
        // Example from Twilio's documentation. Its URL differs from ours; the signing rule is the same.
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, b"12345");
        let text = "https://mycompany.com/myapp.php?foo=1&bar=2CallSidCA1234567890ABCDECaller+12349013030Digits1234From+12349013030To+18005551212";
        assert_eq!(STANDARD.encode(hmac::sign(&key, text.as_bytes())), "0/KCTR6DLpKmkAf8muzZqo1nDgQ=");
    }

    #[test]
    fn phone_numbers_keep_their_plus() {
        assert_eq!(encode_form(&[("To", "+15550100"), ("Say", "a b")]), "To=%2B15550100&Say=a+b");
    }
}
