//! Spans for outgoing requests.

use opentelemetry::trace::TraceContextExt;
use reqwest::{RequestBuilder, Response};
use tracing::{Instrument, field};
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::{
    header::{TRACEPARENT, format_traceparent},
    spans::Surroundings,
};

/// Sends a request for the operation `call` to `peer`. If the current span is recorded, the request gets a span, and a
/// `traceparent` header with its id. Otherwise there is no header, and the receiver may sample as it likes.
pub async fn send_request(peer: &'static str, call: &str, request: RequestBuilder) -> reqwest::Result<Response> {
    let Some(outer) = Surroundings::look_around().recorded else { return request.send().await };
    let span = tracing::error_span!(
        "call", peer, call, trace_id = %outer.trace_id(), http.response.status_code = field::Empty
    );
    let traceparent = format_traceparent(span.context().span().span_context());
    let sent = request.header(TRACEPARENT, traceparent).send().instrument(span.clone()).await;
    if let Ok(answer) = &sent {
        span.record("http.response.status_code", answer.status().as_u16());
    }
    sent
}
