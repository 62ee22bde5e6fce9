//! A trace collector that receives OTLP over HTTP and decodes the protobuf.

use std::collections::{BTreeMap, BTreeSet};

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value},
    trace::v1::Span,
};
use prost::Message;

use test_support::Receiver;

const PATH: &str = "/v1/traces";

pub(crate) struct Collector {
    /// Receiver that can delay its answers.
    pub(crate) receiver: Receiver,
}

/// A received span. Ids are hexadecimal; a missing id is empty.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CollectedSpan {
    pub(crate) name: String,
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) parent: String,
    /// Trace and span ids of its links.
    pub(crate) links: Vec<(String, String)>,
    /// `serve` or `work`.
    pub(crate) process: String,
    /// String attributes.
    pub(crate) texts: BTreeMap<String, String>,
    /// Names of its integer attributes.
    pub(crate) integers: BTreeSet<String>,
}

impl Collector {
    pub(crate) async fn start() -> Self {
        Self { receiver: Receiver::start().await }
    }

    /// Returns settings that make processes send this share of traces to the collector.
    pub(crate) fn settings(&self, sample_ratio: f64) -> String {
        format!("[traces]\nendpoint = \"{}\"\nsample_ratio = {sample_ratio:?}\n", self.receiver.url(PATH))
    }

    /// Returns all spans received so far.
    pub(crate) fn spans(&self) -> Vec<CollectedSpan> {
        let mut spans = Vec::new();
        for request in self.receiver.received() {
            assert_eq!(request.path, PATH);
            assert_eq!(request.headers["content-type"], "application/x-protobuf");
            let request = ExportTraceServiceRequest::decode(request.bytes).unwrap();
            for of_process in request.resource_spans {
                let about = texts(of_process.resource.unwrap().attributes);
                assert_eq!(about["service.name"], "dispatchq");
                let arrived = of_process.scope_spans.into_iter().flat_map(|scope| scope.spans);
                spans.extend(arrived.map(|span| CollectedSpan::new(span, &about["dispatchq.process"])));
            }
        }
        spans
    }

    /// Returns the ids of all traces with a received span.
    pub(crate) fn traces(&self) -> BTreeSet<String> {
        self.spans().into_iter().map(|span| span.trace).collect()
    }
}

impl CollectedSpan {
    fn new(span: Span, process: &str) -> Self {
        Self {
            name: span.name,
            trace: hex(&span.trace_id),
            id: hex(&span.span_id),
            parent: hex(&span.parent_span_id),
            links: span.links.iter().map(|link| (hex(&link.trace_id), hex(&link.span_id))).collect(),
            process: process.to_owned(),
            integers: integers(&span.attributes),
            texts: texts(span.attributes),
        }
    }
}

fn texts(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |value| if let Some(Value::StringValue(text)) = value { Some(text) } else { None };
    attributes.into_iter().filter_map(|pair| Some((pair.key, text(pair.value?.value)?))).collect()
}

fn integers(attributes: &[KeyValue]) -> BTreeSet<String> {
    let is_integer = |pair: &&KeyValue| {
        let value = pair.value.as_ref().and_then(|value| value.value.as_ref());
        matches!(value, Some(Value::IntValue(_)))
    };
    attributes.iter().filter(is_integer).map(|pair| pair.key.clone()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
