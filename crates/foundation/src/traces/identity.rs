//! The ids of an order's trace.

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};
use sha2::{Digest, Sha256};

/// Trace of one order. Bytes 0 to 15 of the SHA-256 of the order's id are the trace id; the next 8 bytes are the root
/// span id.
///
/// `printf %s ORD-1 | sha256sum | cut -c1-32` prints the trace id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderTrace {
    pub trace_id: TraceId,
    /// Id of the order's root span. Child spans use it even before the root is exported.
    pub root: SpanId,
}

impl OrderTrace {
    pub fn of_order(order: &str) -> Self {
        let hash = Sha256::digest(order.as_bytes());
        let (mut trace_id, mut root) = ([0; 16], [0; 8]);
        trace_id.copy_from_slice(&hash[..16]);
        root.copy_from_slice(&hash[16..24]);
        Self { trace_id: TraceId::from_bytes(trace_id), root: SpanId::from_bytes(root) }
    }

    /// Returns the parent context for a span that starts outside the order's trace. It is marked remote because another
    /// process usually records the root span.
    pub(super) fn root_context(&self) -> SpanContext {
        SpanContext::new(self.trace_id, self.root, TraceFlags::SAMPLED, true, TraceState::NONE)
    }
}

/// Share of traces that is recorded. It depends on the trace id, like OpenTelemetry's `TraceIdRatioBased`, so another
/// system with the same share records the same orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleRatio {
    /// Exclusive upper bound for the last 8 bytes of a trace id without their lowest bit.
    bound: u64,
}

impl SampleRatio {
    /// Creates the share from `ratio`: 0 (none) to 1 (all).
    pub fn new(ratio: f64) -> Self {
        const ALL: f64 = (1_u64 << 63) as f64;
        Self { bound: (ratio.clamp(0.0, 1.0) * ALL) as u64 }
    }

    pub fn includes(self, trace_id: TraceId) -> bool {
        let last_bytes = u128::from_be_bytes(trace_id.to_bytes()) as u64;
        last_bytes >> 1 < self.bound
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::{Context, trace::SpanKind};
    use opentelemetry_sdk::trace::{Sampler, SamplingDecision, ShouldSample};

    use super::*;

    #[test]
    fn trace_ids_equal_sha256sum_output() {
        // printf %s ORD-1 | sha256sum
        let hash = hex::encode(Sha256::digest(b"ORD-1"));
        let trace = OrderTrace::of_order("ORD-1");
        assert_eq!(format!("{}{}", trace.trace_id, trace.root), hash[..48]);
        assert_eq!(trace, OrderTrace::of_order("ORD-1"), "in every process, at any time");
        assert_ne!(trace.trace_id, OrderTrace::of_order("ORD-2").trace_id);
    }

    /// The ids are part of the public interface. A change would split the traces of open orders.
    #[test]
    fn trace_ids_of_an_order_never_change() {
        let trace = OrderTrace::of_order("ORD-1");
        assert_eq!(trace.trace_id.to_string(), "f7f8bfa06d24d43c3bc4baf81eb32346");
        assert_eq!(trace.root.to_string(), "4ed8ffb2110c3c0c");
    }

    #[test]
    fn larger_sample_ratio_includes_the_smaller() {
        let traces: Vec<_> = (0..20_000).map(|n| OrderTrace::of_order(&format!("ORD-{n}")).trace_id).collect();
        let sampled = |ratio: f64| traces.iter().filter(|id| SampleRatio::new(ratio).includes(**id)).count();
        assert_eq!((sampled(0.0), sampled(1.0)), (0, traces.len()));
        // 1 % of 20,000: four standard deviations are 56.
        assert!((144..=256).contains(&sampled(0.01)), "{}", sampled(0.01));
        let (one, ten) = (SampleRatio::new(0.01), SampleRatio::new(0.1));
        assert!(traces.iter().all(|id| !one.includes(*id) || ten.includes(*id)));
    }

    #[test]
    fn sample_ratio_matches_opentelemetry_sampler() {
        for ratio in [0.01, 0.3, 0.999] {
            let sampler = Sampler::TraceIdRatioBased(ratio);
            for n in 0..2_000 {
                let id = OrderTrace::of_order(&format!("ORD-{n}")).trace_id;
                let theirs = sampler.should_sample(Some(&Context::new()), id, "", &SpanKind::Internal, &[], &[]);
                let is_theirs = matches!(theirs.decision, SamplingDecision::RecordAndSample);
                assert_eq!(SampleRatio::new(ratio).includes(id), is_theirs, "ORD-{n} at {ratio}");
            }
        }
    }
}
