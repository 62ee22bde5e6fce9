//! The tracer of this process.

use std::{cell::Cell, sync::OnceLock, time::SystemTime};

use opentelemetry::{
    Context, KeyValue,
    trace::{Link, Span, SpanBuilder, SpanContext, SpanId, TraceId, Tracer},
};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator, SdkTracer};

use super::identity::{OrderTrace, SampleRatio};

/// Global tracer of the process, like the subscriber of `tracing`. Empty if no trace is recorded.
static TRACER: OnceLock<OrderTracer> = OnceLock::new();

thread_local! {
    /// Ids of the next span if they must not be random.
    static CHOSEN_IDS: Cell<Option<(TraceId, SpanId)>> = const { Cell::new(None) };
}

/// Tracer for spans of sampled orders.
#[derive(Debug)]
pub(super) struct OrderTracer {
    ratio: SampleRatio,
    /// Configured ratio, for spans that belong to no order.
    share: f64,
    tracer: SdkTracer,
}

impl OrderTracer {
    /// Installs the tracer for the lifetime of the process.
    pub(super) fn install(share: f64, tracer: SdkTracer) {
        let _ = TRACER.set(Self { ratio: SampleRatio::new(share), share, tracer });
    }

    pub(super) fn installed() -> Option<&'static Self> {
        TRACER.get()
    }

    /// Returns the order's trace if it is sampled.
    pub(super) fn find_sampled(order: &str) -> Option<OrderTrace> {
        let tracer = Self::installed()?;
        Some(OrderTrace::of_order(order)).filter(|trace| tracer.ratio.includes(trace.trace_id))
    }

    /// Decides at random whether to record a span that belongs to no order.
    pub(super) fn samples_once() -> bool {
        Self::installed().is_some_and(|tracer| rand::random::<f64>() < tracer.share)
    }

    /// Records the root span of an order. It ends now.
    pub(super) fn record_root(&self, trace: OrderTrace, order: &str, begun: SystemTime, caller: Option<SpanContext>) {
        let builder = SpanBuilder::from_name("order")
            .with_start_time(begun)
            .with_attributes([KeyValue::new("order.id", order.to_owned())])
            .with_links(caller.map(Link::with_context).into_iter().collect());
        CHOSEN_IDS.set(Some((trace.trace_id, trace.root)));
        let mut root = self.tracer.build_with_context(builder, &Context::new());
        CHOSEN_IDS.set(None);
        root.end();
    }
}

/// Generator of random ids, except for the root span of an order.
#[derive(Debug, Default)]
pub(super) struct OrderIdGenerator {
    random: RandomIdGenerator,
}

impl IdGenerator for OrderIdGenerator {
    fn new_trace_id(&self) -> TraceId {
        CHOSEN_IDS.get().map_or_else(|| self.random.new_trace_id(), |(trace_id, _)| trace_id)
    }

    fn new_span_id(&self) -> SpanId {
        CHOSEN_IDS.get().map_or_else(|| self.random.new_span_id(), |(_, span_id)| span_id)
    }
}
