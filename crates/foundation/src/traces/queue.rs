//! Bounded queue of finished spans, and the task that sends them in batches.
//!
//! Nothing blocks on the queue. A span is dropped if the queue is full. The spans of a request are dropped if the
//! collector fails or does not respond in time. Both are counted.

use std::time::Duration;

use metrics::counter;
use opentelemetry::{Context, trace::SpanKind};
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{Span, SpanData, SpanExporter, SpanProcessor},
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::spans::RECORDED;

/// Maximum spans in one request.
const MAX_BATCH: usize = 512;
/// Maximum wait for further spans of a batch.
const LINGER: Duration = Duration::from_secs(1);

const SENT: &str = "sent";
const QUEUE_FULL: &str = "queue_full";
const FAILED: &str = "failed";
/// Outcomes of a span, as label values.
pub const SPAN_RESULTS: [&str; 3] = [SENT, QUEUE_FULL, FAILED];

fn count_spans(result: &'static str, spans: usize) {
    counter!("dispatchq_trace_spans_total", "result" => result).increment(spans as u64);
}

#[derive(Debug)]
pub(super) struct SpanQueue {
    waiting: mpsc::Sender<SpanData>,
}

impl SpanQueue {
    /// Creates a queue for at most `max_spans` spans, and the receiver for the sending task.
    pub(super) fn new(max_spans: usize) -> (Self, mpsc::Receiver<SpanData>) {
        let (waiting, taken) = mpsc::channel(max_spans);
        (Self { waiting }, taken)
    }
}

impl SpanProcessor for SpanQueue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, mut span: SpanData) {
        name_for_backends(&mut span);
        if self.waiting.try_send(span).is_err() {
            count_spans(QUEUE_FULL, 1);
        }
    }

    /// Does nothing: the sending task sends queued spans.
    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    /// Does nothing: [`super::TraceSending::shut_down`] sends the queued spans.
    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Sets the name and kind that tracing backends group by. In the log the span has a short name.
fn name_for_backends(span: &mut SpanData) {
    // Redundant: the span has its trace id.
    span.attributes.retain(|attribute| attribute.key.as_str() != RECORDED);
    let text_of = |name: &str| {
        let found = span.attributes.iter().find(|attribute| attribute.key.as_str() == name);
        found.map_or_else(String::new, |attribute| attribute.value.as_str().into_owned())
    };
    let (kind, name) = match &*span.name {
        "api" => (SpanKind::Server, format!("{} {}", text_of("http.request.method"), text_of("http.route"))),
        "job" => {
            let id = text_of("job.id");
            (SpanKind::Consumer, format!("job {}", id.split(':').next().unwrap_or_default()))
        }
        "call" => (SpanKind::Client, format!("{} {}", text_of("peer"), text_of("call"))),
        _ => return,
    };
    span.span_kind = kind;
    span.name = name.into();
}

/// Sends spans until `stop`, and then those that are still queued.
pub(super) struct SpanSender<E> {
    pub(super) waiting: mpsc::Receiver<SpanData>,
    pub(super) exporter: E,
    /// Timeout for one request, its retries included.
    pub(super) timeout: Duration,
    pub(super) stop: CancellationToken,
}

impl<E: SpanExporter> SpanSender<E> {
    pub(super) async fn run(mut self) {
        let mut is_failing = false;
        while let Some(batch) = self.next_batch().await {
            let spans = batch.len();
            let failed = match tokio::time::timeout(self.timeout, self.exporter.export(batch)).await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("no answer in time".to_owned()),
            };
            count_spans(if failed.is_none() { SENT } else { FAILED }, spans);
            match failed {
                Some(error) if !is_failing => {
                    tracing::warn!(error, "Trace spans cannot be sent and are dropped; orders are not affected.");
                    is_failing = true;
                }
                None if is_failing => {
                    tracing::info!("Trace spans are sent again.");
                    is_failing = false;
                }
                _ => {}
            }
        }
    }

    /// Returns the next spans to send, at least one. Returns `None` if the queue is empty and no further span is
    /// expected.
    async fn next_batch(&mut self) -> Option<Vec<SpanData>> {
        let Self { waiting, stop, .. } = self;
        let first = tokio::select! {
            biased;
            first = waiting.recv() => first?,
            () = stop.cancelled() => waiting.try_recv().ok()?,
        };
        let mut batch = vec![first];
        let gather = async {
            while batch.len() < MAX_BATCH {
                let Some(next) = waiting.recv().await else { return };
                batch.push(next);
            }
        };
        tokio::select! {
            biased;
            () = gather => {}
            () = stop.cancelled() => {}
            () = tokio::time::sleep(LINGER) => {}
        }
        // Tokio's cooperative budget may interrupt `gather`. Add the spans that are still queued.
        while batch.len() < MAX_BATCH
            && let Ok(next) = waiting.try_recv()
        {
            batch.push(next);
        }
        Some(batch)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, Mutex},
        time::SystemTime,
    };

    use opentelemetry::{
        InstrumentationScope, KeyValue,
        trace::{SpanContext, SpanId, Status},
    };
    use opentelemetry_sdk::{
        error::OTelSdkError,
        trace::{SpanEvents, SpanLinks},
    };

    use super::*;

    fn span(name: &'static str, attributes: Vec<KeyValue>) -> SpanData {
        let now = SystemTime::now();
        SpanData {
            span_context: SpanContext::NONE,
            parent_span_id: SpanId::INVALID,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: name.into(),
            start_time: now,
            end_time: now,
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: InstrumentationScope::default(),
        }
    }

    /// Collector that refuses its first requests and records the sizes of the others.
    #[derive(Debug, Clone, Default)]
    struct Collector {
        refusals: Arc<Mutex<usize>>,
        taken: Arc<Mutex<Vec<usize>>>,
    }

    impl SpanExporter for Collector {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            let mut refusals = self.refusals.lock().unwrap();
            if *refusals > 0 {
                *refusals -= 1;
                return Err(OTelSdkError::InternalFailure("no".to_owned()));
            }
            self.taken.lock().unwrap().push(batch.len());
            Ok(())
        }
    }

    #[test]
    fn finished_span_gets_backend_name_and_kind() {
        let named = |name, attributes: &[(&'static str, &'static str)]| {
            let attributes = attributes.iter().map(|(key, value)| KeyValue::new(*key, *value)).collect();
            let mut span = span(name, attributes);
            name_for_backends(&mut span);
            (span.span_kind, span.name.into_owned(), span.attributes.len())
        };
        let route = [("http.request.method", "POST"), ("http.route", "/api/v1/orders/{id}/accept"), ("trace_id", "07")];
        assert_eq!(named("api", &route), (SpanKind::Server, "POST /api/v1/orders/{id}/accept".to_owned(), 2));
        assert_eq!(named("job", &[("job.id", "timeout:ORD-1:3")]), (SpanKind::Consumer, "job timeout".to_owned(), 1));
        assert_eq!(
            named("call", &[("peer", "partner"), ("call", "book")]),
            (SpanKind::Client, "partner book".to_owned(), 2)
        );
        assert_eq!(named("change", &[]), (SpanKind::Internal, "change".to_owned(), 0));
    }

    #[test]
    fn full_queue_drops_spans_without_waiting() {
        let (queue, mut taken) = SpanQueue::new(2);
        for name in ["first", "second", "third"] {
            queue.on_end(span(name, Vec::new()));
        }
        let kept: Vec<_> = std::iter::from_fn(|| taken.try_recv().ok()).map(|span| span.name).collect();
        assert_eq!(kept, ["first", "second"]);
    }

    #[tokio::test]
    async fn last_spans_are_sent_in_bounded_batches() {
        let (queue, waiting) = SpanQueue::new(2 * MAX_BATCH);
        for _ in 0..MAX_BATCH + 7 {
            queue.on_end(span("change", Vec::new()));
        }
        let (collector, stop) = (Collector::default(), CancellationToken::new());
        stop.cancel();
        let sender = SpanSender { waiting, exporter: collector.clone(), timeout: Duration::from_secs(60), stop };
        sender.run().await;
        assert_eq!(*collector.taken.lock().unwrap(), [MAX_BATCH, 7]);
        drop(queue);
    }

    #[tokio::test]
    async fn refused_batch_is_dropped_next_is_sent() {
        let (queue, waiting) = SpanQueue::new(2 * MAX_BATCH);
        for _ in 0..MAX_BATCH + 7 {
            queue.on_end(span("change", Vec::new()));
        }
        let (collector, stop) = (Collector::default(), CancellationToken::new());
        *collector.refusals.lock().unwrap() = 1;
        stop.cancel();
        let sender = SpanSender { waiting, exporter: collector.clone(), timeout: Duration::from_secs(60), stop };
        sender.run().await;
        assert_eq!(*collector.taken.lock().unwrap(), [7]);
    }
}
