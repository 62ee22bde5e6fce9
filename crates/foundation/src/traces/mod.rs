//! Traces: one for each order, across the API, its jobs and the calls they make, sent over OTLP.
//! Design: docs/design/metrics-and-traces.md.
//!
//! A trace's id is the hash of the order's id, so any process knows it at any time, and neither a job nor Redis nor a row carries
//! it. Whether an order is traced follows from that id, too: all its spans are recorded, or none.
//!
//! * `identity`: the ids of an order's trace, and whether it is sampled. `header`: `traceparent` of W3C Trace Context. Both pure.
//! * `tracer`: what this process traces with, once it traces.
//! * `spans`: the spans there are, in the log and in traces. `call`: requests that leave this process.
//! * `queue`: finished spans that wait, and the task that sends them. `export`: the settings, and how it all begins.

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
