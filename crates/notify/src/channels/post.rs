//! POST requests, and the meaning of their responses for a message.

use std::time::Duration;

use chrono::{DateTime, Utc};
use reqwest::{
    RequestBuilder, Response, StatusCode,
    header::{HeaderMap, RETRY_AFTER},
};

use super::DeliveryError;
use foundation::traces;

/// Sends the request. Any 2xx means delivered; redirects are not followed and count as failures.
pub(super) async fn send_request(request: RequestBuilder) -> Result<(), DeliveryError> {
    send_for_answer(request).await.map(drop)
}

/// Same as [`send_request`], but returns the response with its body unread.
pub(super) async fn send_for_answer(request: RequestBuilder) -> Result<Response, DeliveryError> {
    let answer = await_answer(request).await?;
    classify_answer(&answer)?;
    Ok(answer)
}

/// Sends the request and returns the response, whatever its status is.
pub(super) async fn await_answer(request: RequestBuilder) -> Result<Response, DeliveryError> {
    traces::send_request("channel", "deliver", request).await.map_err(to_delivery_error)
}

/// Sends the request like [`await_answer`], without the headers of a trace. The id of a trace can be computed from the id of
/// the order, which the receiver must not learn.
pub(super) async fn await_untraced(request: RequestBuilder) -> Result<Response, DeliveryError> {
    request.send().await.map_err(to_delivery_error)
}

/// Leaves out the URL, whose path may be a secret.
fn to_delivery_error(error: reqwest::Error) -> DeliveryError {
    DeliveryError::Again { error: describe_cause(&error.without_url()), pause: None }
}

/// Returns the error with its causes, because "error sending request" alone does not help.
fn describe_cause(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}

/// Returns the meaning of the status.
pub(super) fn classify_answer(answer: &Response) -> Result<(), DeliveryError> {
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    let error = format!("the receiver answered {}", status.as_u16());
    Err(match status {
        StatusCode::GONE => DeliveryError::Gone(error),
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
            DeliveryError::Again { error, pause: retry_after(answer.headers(), Utc::now()) }
        }
        status if status.is_client_error() => DeliveryError::Refused(error),
        _ => DeliveryError::Again { error, pause: retry_after(answer.headers(), Utc::now()) },
    })
}

/// Parses `Retry-After`, which is in seconds or a date.
fn retry_after(headers: &HeaderMap, now: DateTime<Utc>) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(secs) = value.parse() {
        return Some(Duration::from_secs(secs));
    }
    let date = DateTime::parse_from_rfc2822(value).ok()?;
    (date.with_timezone(&Utc) - now).to_std().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_date() {
        let now = "2026-01-09T10:30:00Z".parse().unwrap();
        let read = |text: &str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]);
            retry_after(&headers, now).map(|pause| pause.as_secs())
        };
        assert_eq!(read("120"), Some(120));
        assert_eq!(read("Fri, 09 Jan 2026 10:31:30 GMT"), Some(90));
        assert_eq!(read("Fri, 09 Jan 2026 10:29:00 GMT"), None);
        assert_eq!((read("soon"), read("-5")), (None, None));
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }
}
