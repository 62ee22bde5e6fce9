//! The ids of an order's trace.

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};
use sha2::{Digest, Sha256};

/// The trace of one order: 16 bytes of the SHA-256 of the order's id are the trace's id, the next 8 that of its first span.
///
/// `printf %s ORD-1 | sha256sum | cut -c1-32` prints the id of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderTrace {
    pub trace_id: TraceId,
    /// Of the span that the order's creation records. All others descend from it, also while it is not there yet.
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

    /// The parent of spans that no other span of the order surrounds. It is remote: most often another process records it.
    pub(super) fn root_context(&self) -> SpanContext {
        SpanContext::new(self.trace_id, self.root, TraceFlags::SAMPLED, true, TraceState::NONE)
    }
}

/// Which share of traces is recorded. It goes by the trace's id, as `TraceIdRatioBased` of OpenTelemetry does, so another system with
/// the same share records the same orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleRatio {
    /// The last 8 bytes of an id, without their lowest bit, are below it.
    bound: u64,
}

impl SampleRatio {
    /// `ratio` from 0 (none) to 1 (all).
    pub fn new(ratio: f64) -> Self {
        const ALL: f64 = (1_u64 << 63) as f64;
        Self { bound: (ratio.clamp(0.0, 1.0) * ALL) as u64 }
    }

    /// Returns whether this trace is recorded.
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
    fn the_ids_are_those_that_sha256sum_prints() {
        // printf %s ORD-1 | sha256sum
        let hash = hex::encode(Sha256::digest(b"ORD-1"));
        let trace = OrderTrace::of_order("ORD-1");
        assert_eq!(format!("{}{}", trace.trace_id, trace.root), hash[..48]);
        assert_eq!(trace, OrderTrace::of_order("ORD-1"), "in every process, at any time");
        assert_ne!(trace.trace_id, OrderTrace::of_order("ORD-2").trace_id);
    }

    /// They are promised to other systems: a change would tear the traces of open orders apart.
    #[test]
    fn the_ids_of_an_order_never_change() {
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
    fn other_systems_with_the_same_share_choose_the_same_orders() {
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
