//! Trace collector of a run. It accepts all spans and keeps none, so that only dispatchq's part is measured.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{Router, body::Bytes, extract::State, http::StatusCode, routing::post};
use serde::Serialize;
use tokio_util::sync::DropGuard;

use crate::testbed::serve_local;
use settings::Config;

const PATH: &str = "/v1/traces";

/// A running collector. Dropping it stops it.
#[derive(Debug)]
pub(super) struct TraceCollector {
    address: SocketAddr,
    sampling: f64,
    taken: Arc<TakenSpans>,
    _serving: DropGuard,
}

#[derive(Debug, Default)]
struct TakenSpans {
    requests: AtomicU64,
    bytes: AtomicU64,
}

/// Traces that a run sent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct SentTraces {
    /// Share of orders that were traced.
    pub(super) sampling: f64,
    pub(super) requests: u64,
    pub(super) bytes: u64,
}

impl TraceCollector {
    /// Starts a collector for this share of orders. Returns `None` if traces are off.
    pub(super) async fn start(sampling: Option<f64>) -> anyhow::Result<Option<Self>> {
        let Some(sampling) = sampling else { return Ok(None) };
        let taken = Arc::<TakenSpans>::default();
        let router = Router::new().route(PATH, post(take_spans)).with_state(taken.clone());
        let (address, serving) = serve_local(router).await?;
        Ok(Some(Self { address, sampling, taken, _serving: serving }))
    }

    /// Configures processes to send their spans to this collector.
    pub(super) fn configure(&self, config: &mut Config) {
        config.traces.endpoint = format!("http://{}{PATH}", self.address);
        config.traces.sample_ratio = self.sampling;
    }

    pub(super) fn sent_traces(&self) -> SentTraces {
        SentTraces {
            sampling: self.sampling,
            requests: self.taken.requests.load(Ordering::Relaxed),
            bytes: self.taken.bytes.load(Ordering::Relaxed),
        }
    }
}

async fn take_spans(State(taken): State<Arc<TakenSpans>>, spans: Bytes) -> StatusCode {
    taken.requests.fetch_add(1, Ordering::Relaxed);
    taken.bytes.fetch_add(spans.len() as u64, Ordering::Relaxed);
    StatusCode::OK
}
