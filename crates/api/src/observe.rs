//! Observation of requests: an id for each, a metric by route and status, and a log line about refused callers.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    client::ClientAddress,
    ignored_fields::{self, IGNORED_FIELDS, IgnoredFields},
};
use axum::{
    extract::{ConnectInfo, MatchedPath, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode},
    middleware::Next,
    response::Response,
};
use foundation::traces::{self, RequestRoute};
use ipnet::IpNet;
use metrics::{counter, histogram};
use parking_lot::Mutex;
use tracing::Instrument;
use uuid::Uuid;

pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const LONGEST_ID: usize = 64;
/// Interval in which one refusal per code is logged, with the number of refusals since the last log line.
const SAMPLE_EVERY: Duration = Duration::from_secs(10);

/// Reason for a refusal, for the log only. It is attached to the response inside the process and never sent to the
/// client.
#[derive(Debug, Clone)]
pub(super) struct LoggedRefusal {
    pub(super) code: &'static str,
    pub(super) reason: String,
}

/// Marks an answer that gets no request id. It is attached inside the process and never sent to the client.
#[derive(Debug, Clone, Copy)]
pub struct WithoutRequestId;

/// Time when the head of a request was read.
#[derive(Debug, Clone, Copy)]
pub struct HeadRead(pub Instant);

/// State of the middleware. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct RequestObserver {
    proxies: Arc<Vec<IpNet>>,
    /// Per code: the time of the last log line, and the number of refusals since then.
    refused: Arc<Mutex<HashMap<&'static str, (Instant, u64)>>>,
}

impl RequestObserver {
    pub(super) fn new(proxies: Vec<IpNet>) -> Self {
        Self { proxies: Arc::new(proxies), refused: Arc::default() }
    }

    /// Returns the number of refusals since the last log line if this one must be logged, otherwise `None`.
    fn sample_refusal(&self, code: &'static str) -> Option<u64> {
        let mut refused = self.refused.lock();
        match refused.get_mut(code) {
            Some((at, unsaid)) if at.elapsed() < SAMPLE_EVERY => {
                *unsaid += 1;
                None
            }
            Some(entry) => Some(std::mem::replace(entry, (Instant::now(), 0)).1),
            None => {
                refused.insert(code, (Instant::now(), 0));
                Some(0)
            }
        }
    }
}

/// Outermost middleware. It sets the request id and client address, records metrics, and logs refusals and unread
/// fields.
pub(super) async fn observe_request(
    State(observer): State<RequestObserver>,
    mut request: Request,
    next: Next,
) -> Response {
    let begun = request.extensions().get::<HeadRead>().map_or_else(Instant::now, |head| head.0);
    let id = request_id(request.headers());
    if let Some(ConnectInfo(peer)) = request.extensions().get::<ConnectInfo<SocketAddr>>() {
        let address = ClientAddress::of_peer(peer.ip(), request.headers(), &observer.proxies);
        request.extensions_mut().insert(address);
    }
    let address = ClientAddress::of_request(&request).0;
    let method = method_label(request.method());
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let ignored = IgnoredFields::default();
    request.extensions_mut().insert(ignored.clone());
    let span = tracing::error_span!("request", id = id.to_str().unwrap_or_default());
    traces::note_caller(&span, request.headers().get(traces::TRACEPARENT).and_then(|value| value.to_str().ok()));
    let of_order =
        span.in_scope(|| traces::request_span(RequestRoute { method, route: &route, path: request.uri().path() }));
    let mut answer = next.run(request).instrument(of_order).instrument(span.clone()).await;

    let status = answer.status();
    let labels = [("method", method.to_owned()), ("route", route.clone()), ("status", status.as_str().to_owned())];
    counter!("dispatchq_http_requests_total", &labels).increment(1);
    histogram!("dispatchq_http_request_duration_seconds", &labels[..2]).record(begun.elapsed());
    if is_refused(status)
        && let Some(LoggedRefusal { code, reason }) = answer.extensions_mut().remove()
        && let Some(more) = observer.sample_refusal(code)
    {
        let _in_request = span.enter();
        tracing::warn!(
            code, reason, %address, method, route, more_since_last = more,
            "A caller was refused; one refusal per code is logged every 10 s."
        );
    }
    if let Some(names) = ignored.names() {
        if let Some(more) = observer.sample_refusal("IGNORED_FIELDS") {
            let _in_request = span.enter();
            tracing::info!(
                fields = names,
                method,
                route,
                more_since_last = more,
                "A request has fields that are not read; one such request is logged every 10 s."
            );
        }
        if let Some(value) = ignored_fields::header_value(&names) {
            answer.headers_mut().insert(IGNORED_FIELDS, value);
        }
    }
    if answer.extensions_mut().remove::<WithoutRequestId>().is_none() {
        answer.headers_mut().insert(REQUEST_ID, id);
    }
    answer
}

/// Returns whether the caller was refused: no valid key, not allowed, or too many requests.
fn is_refused(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS)
}

/// Returns the caller's request id if a log can contain it, otherwise a new id.
pub(super) fn request_id(headers: &HeaderMap) -> HeaderValue {
    let fits = |value: &&HeaderValue| {
        let bytes = value.as_bytes();
        (1..=LONGEST_ID).contains(&bytes.len())
            && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':'))
    };
    let given = headers.get(REQUEST_ID).filter(fits).cloned();
    given.unwrap_or_else(|| HeaderValue::from_str(&Uuid::now_v7().to_string()).expect("an id is ASCII"))
}

/// Returns the method for a metric label. Other methods share one label, because callers can invent any number of them.
fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(given: &[u8]) -> String {
        let headers = [(REQUEST_ID, HeaderValue::from_bytes(given).unwrap())].into_iter().collect();
        request_id(&headers).to_str().unwrap().to_owned()
    }

    #[test]
    fn printable_request_id_is_kept() {
        assert_eq!(id(b"shop-1:4711.A_b"), "shop-1:4711.A_b");
        for bad in [&b""[..], b"a b", b"\"quoted\"", &[b'x'; 65], b"caf\xe9", b"a\tb"] {
            let made = id(bad);
            assert!(made.parse::<Uuid>().is_ok(), "{made} instead of {bad:?}");
        }
        assert_ne!(request_id(&HeaderMap::new()), request_id(&HeaderMap::new()));
    }

    #[test]
    fn first_refusal_is_logged_and_others_counted() {
        let observer = RequestObserver::new(Vec::new());
        assert_eq!(observer.sample_refusal("UNAUTHENTICATED"), Some(0));
        assert!((0..5).all(|_| observer.sample_refusal("UNAUTHENTICATED").is_none()));
        assert_eq!(observer.sample_refusal("FORBIDDEN"), Some(0));
        let long_ago = Instant::now().checked_sub(SAMPLE_EVERY).unwrap();
        observer.refused.lock().get_mut("UNAUTHENTICATED").unwrap().0 = long_ago;
        assert_eq!(observer.sample_refusal("UNAUTHENTICATED"), Some(5));
    }
}
