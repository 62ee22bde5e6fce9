//! All spans of the program. Each is in the log, where it names log lines. A span of a sampled order is also recorded
//! in the order's trace.
//!
//! Only spans with the field `trace_id` are recorded. The call site thus decides once, and a span that is not recorded
//! costs no more than without traces. It also means that the log lines of a sampled order contain its trace id.

use std::time::SystemTime;

use jobs::{Job, JobId, OrderId, PeriodicTick, RunCycle, RunPlan, SettleTransaction, SubmitOtp};
use opentelemetry::{
    Context,
    trace::{SpanContext, TraceContextExt},
};
use tracing::{Metadata, Span, field};
use tracing_opentelemetry::{OpenTelemetrySpanExt, get_otel_context};
use tracing_subscriber::{
    Registry,
    registry::{LookupSpan, SpanRef},
};

use super::{header::parse_traceparent, identity::OrderTrace, tracer::OrderTracer};

/// Field that marks recorded spans.
pub(super) const RECORDED: &str = "trace_id";
/// Kinds of jobs of bindings. A binding runs for months and has no trace; each of these jobs has one.
const BINDING_KINDS: [&str; 3] = [RunCycle::KIND, SubmitOtp::KIND, SettleTransaction::KIND];
/// Kinds of jobs that belong to no order and are not traced.
const OTHER_KINDS: [&str; 2] = [PeriodicTick::KIND, RunPlan::KIND];

/// Returns whether the spans and events of this call site are recorded in traces.
pub(super) fn is_recorded(metadata: &Metadata<'_>) -> bool {
    metadata.is_event() || metadata.fields().field(RECORDED).is_some()
}

/// Path of a request and its route pattern, such as `/api/v1/orders/{id}/accept`.
#[derive(Debug, Clone, Copy)]
pub struct RequestRoute<'a> {
    pub method: &'static str,
    pub route: &'a str,
    pub path: &'a str,
}

impl RequestRoute<'_> {
    /// Returns the order that the path names. Text that cannot be an order id is not recorded: the caller is not
    /// authenticated yet and may send any text of any length.
    fn order(self) -> Option<OrderId> {
        const ORDERS: &str = "/api/v1/orders/";
        self.route.strip_prefix(ORDERS)?.strip_prefix("{id}")?;
        self.path.strip_prefix(ORDERS)?.split('/').next()?.parse().ok()
    }
}

/// Opens the span of a request that changes the order in its path. Returns no span for other requests. Reads are
/// excluded, because apps repeat them while an order is open.
pub fn request_span(request: RequestRoute<'_>) -> Span {
    if OrderTracer::installed().is_none() || matches!(request.method, "GET" | "HEAD") {
        return Span::none();
    }
    let Some(order) = request.order() else { return Span::none() };
    let Some(trace) = OrderTracer::find_sampled(order.as_str()) else { return Span::none() };
    let span = tracing::error_span!(
        "api", order.id = %order, trace_id = %trace.trace_id,
        http.request.method = request.method, http.route = request.route
    );
    adopt_span(trace, span)
}

pub fn creation_span(order: &OrderId) -> Span {
    let Some(trace) = OrderTracer::find_sampled(order.as_str()) else { return Span::none() };
    adopt_span(trace, tracing::error_span!("create", order.id = %order, trace_id = %trace.trace_id))
}

/// Records the root span of an order's trace after the order was created. `begun` is the start of the creation.
pub fn record_creation(order: &OrderId, begun: SystemTime) {
    let Some(tracer) = OrderTracer::installed() else { return };
    if let Some(trace) = OrderTracer::find_sampled(order.as_str()) {
        tracer.record_root(trace, order.as_str(), begun, Surroundings::look_around().caller);
    }
}

pub fn change_span(order: &OrderId) -> Span {
    match OrderTracer::find_sampled(order.as_str()) {
        Some(trace) => adopt_span(trace, tracing::error_span!("change", order.id = %order, trace_id = %trace.trace_id)),
        None => tracing::error_span!("change", order.id = %order),
    }
}

/// Opens the span of a job. A recorded span has the lateness, so that a collector finds the traces of late jobs.
pub fn job_span(id: &JobId, lateness_ms: u64) -> Span {
    let lateness_ms = lateness_ms.cast_signed();
    let (kind, key) = (id.kind(), id.key());
    if BINDING_KINDS.contains(&kind) && OrderTracer::samples_once() {
        let span = tracing::error_span!("job", job.id = %id, job.lateness_ms = lateness_ms, trace_id = field::Empty);
        let context = span.context();
        span.record(RECORDED, field::display(context.span().span_context().trace_id()));
        return span;
    }
    // A message about a binding has the same job kind as one about an order; it is traced by the binding's id.
    let order = key.split(':').next().filter(|_| !BINDING_KINDS.contains(&kind) && !OTHER_KINDS.contains(&kind));
    match order.and_then(OrderTracer::find_sampled) {
        Some(trace) => adopt_span(
            trace,
            tracing::error_span!("job", job.id = %id, job.lateness_ms = lateness_ms, trace_id = %trace.trace_id),
        ),
        None => tracing::error_span!("job", job.id = %id),
    }
}

/// Stores the caller's span from `traceparent` in the request's span. A caller that does not record is ignored, because
/// a link to it would lead nowhere.
pub fn note_caller(request: &Span, traceparent: Option<&str>) {
    if OrderTracer::installed().is_none() {
        return;
    }
    let Some(caller) = traceparent.and_then(parse_traceparent).filter(SpanContext::is_sampled) else { return };
    request.with_subscriber(|(id, dispatch)| {
        if let Some(registry) = dispatch.downcast_ref::<Registry>()
            && let Some(span) = registry.span(id)
        {
            span.extensions_mut().replace(CallerSpan(caller));
        }
    });
}

struct CallerSpan(SpanContext);

/// Adds a new span to the order's trace. Inside a span of the same order it is already a child of that span. Otherwise
/// it becomes a child of the order's root span, with links to its causes: the caller's span, or a span of another
/// order.
fn adopt_span(trace: OrderTrace, span: Span) -> Span {
    let around = Surroundings::look_around();
    let is_within = around.recorded.as_ref().is_some_and(|outer| outer.trace_id() == trace.trace_id);
    if !is_within {
        // Fails if the log filter disables the span; then nothing is recorded.
        let _ = span.set_parent(Context::new().with_remote_span_context(trace.root_context()));
        for cause in around.recorded.into_iter().chain(around.caller) {
            span.add_link(cause);
        }
    }
    span
}

/// Recorded spans around the current task.
#[derive(Debug, Default)]
pub(super) struct Surroundings {
    /// Innermost recorded span.
    pub(super) recorded: Option<SpanContext>,
    /// Caller's span of the current request.
    caller: Option<SpanContext>,
}

impl Surroundings {
    /// Returns the surrounding spans, or none if this process does not trace.
    pub(super) fn look_around() -> Self {
        if OrderTracer::installed().is_none() {
            return Self::default();
        }
        let around = Span::current().with_subscriber(|(id, dispatch)| {
            let mut around = Self::default();
            let innermost = dispatch.downcast_ref::<Registry>().and_then(|registry| registry.span(id));
            for span in innermost.iter().flat_map(SpanRef::scope) {
                if around.caller.is_none() {
                    around.caller = span.extensions().get::<CallerSpan>().map(|caller| caller.0.clone());
                }
                if around.recorded.is_none() {
                    let context = get_otel_context(&span.id(), dispatch);
                    let recorded = context.map(|context| context.span().span_context().clone());
                    around.recorded = recorded.filter(SpanContext::is_valid);
                }
            }
            around
        });
        around.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order_of(route: &str, path: &str) -> Option<String> {
        RequestRoute { method: "POST", route, path }.order().map(String::from)
    }

    #[test]
    fn route_and_path_name_the_order() {
        assert_eq!(order_of("/api/v1/orders/{id}/accept", "/api/v1/orders/ORD-1/accept"), Some("ORD-1".to_owned()));
        assert_eq!(order_of("/api/v1/orders/{id}", "/api/v1/orders/ORD-1"), Some("ORD-1".to_owned()));
        assert_eq!(order_of("/api/v1/orders/", "/api/v1/orders/"), None);
        assert_eq!(order_of("/api/v1/drivers/{id}/location", "/api/v1/drivers/D-1/location"), None);
        assert_eq!(order_of("none", "/api/v1/orders/ORD-1"), None);
    }

    #[test]
    fn path_without_valid_order_id_is_ignored() {
        for id in ["", "08123%20456", "jo@example.com", &"x".repeat(65), &"x".repeat(60_000)] {
            assert_eq!(order_of("/api/v1/orders/{id}/accept", &format!("/api/v1/orders/{id}/accept")), None, "{id}");
        }
    }

    #[test]
    fn untraced_process_opens_no_recorded_spans() {
        let order: OrderId = "ORD-1".parse().unwrap();
        assert!(creation_span(&order).is_none());
        let request = RequestRoute { method: "POST", route: "/api/v1/orders/{id}", path: "/api/v1/orders/ORD-1" };
        assert!(request_span(request).is_none());
        assert!(Surroundings::look_around().recorded.is_none());
    }
}
