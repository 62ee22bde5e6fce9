//! A collector of traces: takes OTLP over HTTP, and reads the protobuf.

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
    /// Can be told to hold its answers back.
    pub(crate) receiver: Receiver,
}

/// A span as it arrived; ids are in hexadecimal digits, an id that is not there is empty.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CollectedSpan {
    pub(crate) name: String,
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) parent: String,
    /// Traces and spans it is linked to.
    pub(crate) links: Vec<(String, String)>,
    /// `serve` or `work`.
    pub(crate) process: String,
    /// Those of its attributes that are texts.
    pub(crate) texts: BTreeMap<String, String>,
}

impl Collector {
    pub(crate) async fn start() -> Self {
        Self { receiver: Receiver::start().await }
    }

    /// The settings by which processes send so large a share here.
    pub(crate) fn settings(&self, sample_ratio: f64) -> String {
        format!("[traces]\nendpoint = \"{}\"\nsample_ratio = {sample_ratio:?}\n", self.receiver.url(PATH))
    }

    /// All spans that have arrived.
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

    /// The traces of which a span has arrived.
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
            texts: texts(span.attributes),
        }
    }
}

fn texts(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |value| if let Some(Value::StringValue(text)) = value { Some(text) } else { None };
    attributes.into_iter().filter_map(|pair| Some((pair.key, text(pair.value?.value)?))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
