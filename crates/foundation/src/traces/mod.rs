//! Traces: one per order, across the API, its jobs and their calls, sent over OTLP. Design:
//! docs/design/metrics-and-traces.md.
//!
//! The trace id is a hash of the order's id. Any process can compute it, so it is stored neither in jobs nor in Redis
//! nor in rows. The trace id also decides whether an order is sampled: all its spans are recorded, or none.
//!
//! * `identity`: ids of an order's trace, and whether it is sampled. `header`: `traceparent` of W3C Trace Context. Both
//!   are pure.
//! * `tracer`: the tracer of this process.
//! * `spans`: the spans of logs and traces. `call`: spans for outgoing requests.
//! * `queue`: queued spans, and the task that sends them. `export`: settings and start.

mod call;
mod export;
mod header;
mod identity;
mod queue;
mod spans;
mod tracer;

pub use call::send_request;
pub use export::{TraceSending, start_traces};
pub use header::TRACEPARENT;
pub use identity::{OrderTrace, SampleRatio};
pub use spans::{RequestRoute, change_span, creation_span, job_span, note_caller, record_creation, request_span};

pub use export::check_traces;
pub use queue::SPAN_RESULTS;
