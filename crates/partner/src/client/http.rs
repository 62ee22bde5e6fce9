//! Client of the partner's API: book, query, cancel. Errors are classified by their consequence.

use std::time::Duration;

use chrono::{DateTime, Utc};
use model::{
    clock::Clock,
    details::{Contact, OrderPlace},
    order::{Booking, Order},
    order_patch::OrderContents,
    partner::{
        BookingReference,
        answer::{CallError, JobStatus},
    },
};
use reqwest::{
    Method, RequestBuilder, Response, StatusCode, Url,
    header::{AUTHORIZATION, HeaderMap, HeaderValue, RETRY_AFTER},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::json;

use foundation::{config::error::ConfigError, crash, outbound, system::SystemClock, traces};

/// Maximum size of a response. A longer response is an error.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

#[derive(Debug, Clone, Copy, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum PartnerCall {
    Book,
    JobStatus,
    Cancel,
    Details,
}

impl PartnerCall {
    pub const ALL: [Self; 4] = [Self::Book, Self::JobStatus, Self::Cancel, Self::Details];

    /// Returns the value of the metric label.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[derive(Debug, Deserialize)]
struct BookingAnswer {
    booking_id: String,
}

/// Places of an order, as a partner gets them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BookingPlaces {
    pub pickup: OrderPlace,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropoff: Option<OrderPlace>,
}

impl From<OrderContents> for BookingPlaces {
    fn from(OrderContents { pickup, details }: OrderContents) -> Self {
        Self { pickup: OrderPlace::new(pickup, details.pickup_address), dropoff: details.dropoff }
    }
}

/// Current contents of an order for the partner of its booking.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BookingDetails {
    pub pickup: OrderPlace,
    pub dropoff: Option<OrderPlace>,
    /// `None` also while the booking is not confirmed.
    pub contact: Option<Contact>,
}

impl BookingDetails {
    /// Creates the details. A booking is confirmed if it has a job id.
    pub fn new(mut contents: OrderContents, is_confirmed: bool) -> Self {
        let contact = contents.details.contact.take().filter(|contact| is_confirmed && !contact.is_empty());
        let BookingPlaces { pickup, dropoff } = contents.into();
        Self { pickup, dropoff, contact }
    }
}

/// Part of an error response that is shown to people.
#[derive(Debug, Deserialize)]
struct ErrorBody {
    error_code: String,
}

fn is_word(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// Client of one partner. Cheap to clone.
#[derive(Debug, Clone)]
pub struct PartnerClient {
    http: reqwest::Client,
    base: Url,
    authorization: HeaderValue,
}

impl PartnerClient {
    pub(crate) fn new(mut base: Url, api_key: &str, timeout: Duration) -> Result<Self, ConfigError> {
        // Without the slash, joining would replace the last segment of the path.
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        let mut authorization = HeaderValue::from_str(&format!("Bearer {api_key}"))
            .map_err(|_| ConfigError::new("api_key cannot be sent in a header"))?;
        authorization.set_sensitive(true);
        Ok(Self { http: outbound::build_client(timeout)?, base, authorization })
    }

    /// Books and returns the booking's id. A repeated key returns the same booking.
    /// `pickup_at` is sent to a partner that accepts pre-bookings.
    pub async fn create_booking(
        &self,
        order: &Order,
        booking: &Booking,
        places: &BookingPlaces,
        pickup_at: Option<DateTime<Utc>>,
    ) -> Result<String, CallError> {
        let reference = BookingReference { order: order.id.clone(), attempt_no: booking.attempt_no }.to_string();
        let mut body = json!({
            "reference": reference,
            "order_id": order.id,
            "attempt": booking.attempt_no,
            "service_type": order.service_type,
            "pickup": places.pickup,
        });
        if let Some(dropoff) = &places.dropoff {
            body["dropoff"] = json!(dropoff);
        }
        if let Some(at) = pickup_at {
            body["pickup_at"] = json!(at);
        }
        let request = self
            .authorized_request(Method::POST, self.endpoint_url(&["bookings"]))
            .header("idempotency-key", reference)
            .json(&body);
        match self.send_for_json::<BookingAnswer>("book", request).await {
            Ok(booked) => checked_id(booked.booking_id),
            // The partner is still processing the previous request with this key.
            Err(CallError::UnderWay(said)) => Err(CallError::Transient(said)),
            Err(error) => Err(error),
        }
    }

    pub async fn job_status(&self, booking_id: &str) -> Result<JobStatus, CallError> {
        let mut url = self.endpoint_url(&["job-status"]);
        url.query_pairs_mut().append_pair("booking_id", booking_id);
        let request = self.authorized_request(Method::GET, url);
        let mut status: JobStatus = self.send_for_json("ask", request).await?;
        if status.booking_id != booking_id {
            return Err(CallError::Transient("the partner's response is about another booking".to_owned()));
        }
        status.job_id = status.job_id.map(checked_id).transpose()?;
        status.driver_id = status.driver_id.map(checked_id).transpose()?;
        Ok(status)
    }

    /// Cancels a booking. An already cancelled booking is not an error.
    pub async fn cancel_booking(&self, booking_id: &str) -> Result<(), CallError> {
        let request = self.authorized_request(Method::POST, self.endpoint_url(&["bookings", booking_id, "cancel"]));
        self.exchange_body("cancel", request).await.map(drop)
    }

    /// Sends the current places and the contact of a booking.
    pub async fn send_details(&self, booking_id: &str, details: &BookingDetails) -> Result<(), CallError> {
        let url = self.endpoint_url(&["bookings", booking_id, "details"]);
        self.exchange_body("details", self.authorized_request(Method::PUT, url).json(details)).await.map(drop)
    }

    fn endpoint_url(&self, path: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url
    }

    fn authorized_request(&self, method: Method, url: Url) -> RequestBuilder {
        self.http.request(method, url).header(AUTHORIZATION, self.authorization.clone())
    }

    async fn send_for_json<T: DeserializeOwned>(&self, what: &str, request: RequestBuilder) -> Result<T, CallError> {
        let body = self.exchange_body(what, request).await?;
        serde_json::from_slice(&body)
            .map_err(|e| CallError::Transient(format!("the partner's answer cannot be read: {e}")))
    }

    /// Sends the request and returns the body of a successful response.
    async fn exchange_body(&self, what: &str, request: RequestBuilder) -> Result<Vec<u8>, CallError> {
        crash::reach_point(what, "sends");
        let answer = traces::send_request("partner", what, request)
            .await
            .map_err(|e| CallError::Transient(outbound::describe_error(&e)))?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        let body = read_body(answer).await?;
        crash::reach_point(what, "answered");
        if status.is_success() { Ok(body) } else { Err(classify_answer(status, &headers, &body, SystemClock.now())) }
    }
}

async fn read_body(mut answer: Response) -> Result<Vec<u8>, CallError> {
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|e| CallError::Transient(outbound::describe_error(&e)))? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_ANSWER_BYTES {
            return Err(CallError::Transient("the partner's answer is too long".to_owned()));
        }
    }
    Ok(body)
}

fn classify_answer(status: StatusCode, headers: &HeaderMap, body: &[u8], now: DateTime<Utc>) -> CallError {
    // The rest of the body is not logged: partners echo their input, which includes positions.
    let said = || match serde_json::from_slice::<ErrorBody>(body) {
        Ok(ErrorBody { error_code }) if is_word(&error_code) => format!("{} {error_code}", status.as_u16()),
        _ => status.as_u16().to_string(),
    };
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => CallError::Unauthorized(status.as_u16()),
        StatusCode::NOT_FOUND => CallError::NotFound,
        StatusCode::CONFLICT => CallError::UnderWay(said()),
        StatusCode::TOO_MANY_REQUESTS => {
            CallError::TooMany(retry_after(headers, now).unwrap_or(Duration::from_secs(1)))
        }
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY => CallError::Transient(said()),
        _ if status.is_client_error() => CallError::Refused(said()),
        _ => CallError::Transient(said()),
    }
}

/// Parses seconds or a date. A date is compared with `now` of this machine's clock, so the caller must bound the
/// result.
fn retry_after(headers: &HeaderMap, now: DateTime<Utc>) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(secs) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(secs).ok();
    }
    let at = DateTime::parse_from_rfc2822(text).ok()?;
    (at.with_timezone(&Utc) - now).to_std().ok()
}

/// Returns an id from the partner if it fits the database column.
fn checked_id(text: String) -> Result<String, CallError> {
    let fits = (1..=128).contains(&text.len()) && model::plain_text::is_plain(&text);
    if fits {
        Ok(text)
    } else {
        Err(CallError::Transient("an id from the partner must have 1 to 128 characters".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classified(status: u16, retry_after: Option<&str>) -> CallError {
        let mut headers = HeaderMap::new();
        if let Some(value) = retry_after {
            headers.insert(RETRY_AFTER, value.parse().unwrap());
        }
        classify_answer(
            StatusCode::from_u16(status).unwrap(),
            &headers,
            br#"{"error_code":"NO","message":"at -6.2,106.8"}"#,
            "2015-10-21T07:28:00Z".parse().unwrap(),
        )
    }

    #[test]
    fn error_responses_are_classified_by_status() {
        assert_eq!(classified(503, None), CallError::Transient("503 NO".to_owned()));
        assert_eq!(classified(404, None), CallError::NotFound);
        assert_eq!(classified(401, None), CallError::Unauthorized(401));
        assert_eq!(classified(409, None), CallError::UnderWay("409 NO".to_owned()));
        assert_eq!(classified(422, None), CallError::Refused("422 NO".to_owned()));
        assert_eq!(classified(429, Some("7")), CallError::TooMany(Duration::from_secs(7)));
        assert_eq!(classified(429, Some("soon")), CallError::TooMany(Duration::from_secs(1)));
        let date = |text| classified(429, Some(text));
        assert_eq!(date("Wed, 21 Oct 2015 07:28:30 GMT"), CallError::TooMany(Duration::from_secs(30)));
        // A date in the past.
        assert_eq!(classified(429, Some("Wed, 21 Oct 2015 07:27:59 GMT")), CallError::TooMany(Duration::from_secs(1)));
    }

    #[test]
    fn paths_are_joined_and_ids_escaped() {
        let client = PartnerClient::new("http://p.example/v2".parse().unwrap(), "k", Duration::from_secs(1)).unwrap();
        let url = client.endpoint_url(&["bookings", "B/../1", "cancel"]);
        assert_eq!(url.as_str(), "http://p.example/v2/bookings/B%2F..%2F1/cancel");
    }
}
