//! Settings and start of tracing.

use std::{collections::HashMap, time::Duration};

use opentelemetry::{KeyValue, trace::TracerProvider};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    trace::{Sampler, SdkTracerProvider, SpanExporter as _},
};
use reqwest::header::{HeaderName, HeaderValue};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::{Layer, Registry, filter::filter_fn};

use super::{
    queue::{SpanQueue, SpanSender},
    spans,
    tracer::{OrderIdGenerator, OrderTracer},
};
use crate::{
    config::{
        error::ConfigError,
        secret::{Secret, ensure_encrypted, parse_web_address},
        traces::TracesConfig,
    },
    outbound,
};

#[derive(Debug)]
pub struct TraceSending {
    stop: CancellationToken,
    task: JoinHandle<()>,
    flush: Duration,
}

impl TraceSending {
    /// Sends the queued spans, for at most the configured flush time. Spans that end later are not sent.
    pub async fn shut_down(mut self) {
        self.stop.cancel();
        if tokio::time::timeout(self.flush, &mut self.task).await.is_err() {
            self.task.abort();
            tracing::warn!(flush = ?self.flush, "The last trace spans could not be sent in time.");
        }
    }
}

/// Checks the trace settings without connecting to the collector.
pub fn check_traces(config: &TracesConfig) -> Result<(), ConfigError> {
    build_exporter(config).map(drop)
}

/// Starts tracing if it is configured. Returns the layer, which belongs below the log layer, and the sending task.
/// Requires a tokio runtime. `process` is `serve` or `work`; `instance` is the name of this process.
pub fn start_traces(
    config: &TracesConfig,
    process: &'static str,
    instance: String,
) -> Result<Option<(impl Layer<Registry> + Send + Sync + use<>, TraceSending)>, ConfigError> {
    // Without sampled orders there is nothing to send.
    if config.sample_ratio <= 0.0 {
        return Ok(None);
    }
    let Some(mut exporter) = build_exporter(config)? else { return Ok(None) };
    let resource = Resource::builder()
        .with_service_name(config.service_name.clone())
        .with_attributes([
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("service.instance.id", instance),
            KeyValue::new("dispatchq.process", process),
        ])
        .build();
    exporter.set_resource(&resource);
    let (queue, waiting) = SpanQueue::new(config.max_queued_spans);
    let stop = CancellationToken::new();
    let sender = SpanSender { waiting, exporter, timeout: config.timeout, stop: stop.clone() };
    let task = tokio::spawn(sender.run());
    // The code that opens a span decides whether it is sampled.
    let tracer = SdkTracerProvider::builder()
        .with_sampler(Sampler::AlwaysOn)
        .with_id_generator(OrderIdGenerator::default())
        .with_resource(resource)
        .with_span_processor(queue)
        .build()
        .tracer("dispatchq");
    OrderTracer::install(config.sample_ratio, tracer.clone());
    let layer = tracing_opentelemetry::layer::<Registry>()
        .with_tracer(tracer)
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        // Spans find their parents through `tracing`.
        .with_context_activation(false)
        .with_filter(filter_fn(spans::is_recorded));
    Ok(Some((layer, TraceSending { stop, task, flush: config.flush })))
}

/// Returns `None` if no collector is configured.
fn build_exporter(config: &TracesConfig) -> Result<Option<SpanExporter>, ConfigError> {
    if config.endpoint.is_empty() {
        return Ok(None);
    }
    build_exporter_to(config).map(Some).map_err(|error| error.within("traces"))
}

fn build_exporter_to(config: &TracesConfig) -> Result<SpanExporter, ConfigError> {
    let url = parse_web_address("endpoint", &config.endpoint)?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(ConfigError::new("endpoint must have no login: give it in headers"));
    }
    let secret = Secret {
        name: "headers",
        value: Some(config.headers.as_str()).filter(|text| !text.is_empty()),
        env: config.headers_env.as_deref(),
        file: config.headers_file.as_deref(),
    };
    let headers = secret.read()?.map(|text| parse_headers(&text)).transpose()?.unwrap_or_default();
    if !headers.is_empty() {
        ensure_encrypted("endpoint", &url)?;
    }
    SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(url.as_str())
        .with_timeout(config.timeout)
        .with_http_client(outbound::build_client(config.timeout)?)
        .with_headers(headers)
        .build()
        .map_err(|error| ConfigError::new(error.to_string()))
}

/// Parses `name=value,name=value`, the format of OTEL_EXPORTER_OTLP_HEADERS. Errors never contain a value.
fn parse_headers(text: &str) -> Result<HashMap<String, String>, ConfigError> {
    let read_pair = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let (name, value) = (name.trim(), value.trim());
        let is_header = HeaderName::from_bytes(name.as_bytes()).is_ok() && HeaderValue::from_str(value).is_ok();
        is_header.then(|| (name.to_owned(), value.to_owned()))
    };
    let pairs = text.split(',').filter(|pair| !pair.trim().is_empty()).map(read_pair);
    pairs.collect::<Option<_>>().ok_or_else(|| ConfigError::new("headers must be name=value, separated by commas"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the `[traces]` section of the shipped config.toml.
    fn shipped() -> TracesConfig {
        let shipped: toml::Table = include_str!("../../../../config.toml").parse().unwrap();
        shipped["traces"].clone().try_into().unwrap()
    }

    fn error(change: impl FnOnce(&mut TracesConfig)) -> String {
        let mut config = shipped();
        "https://collector.example.com/v1/traces".clone_into(&mut config.endpoint);
        change(&mut config);
        build_exporter(&config).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn wrong_trace_settings_are_refused_without_headers() {
        assert_eq!(error(|_| {}), "");
        assert_eq!(error(|config| "x-tenant=7, authorization=Bearer%20abc,".clone_into(&mut config.headers)), "");
        for (endpoint, headers, said) in [
            ("here", "", "traces: endpoint is not valid"),
            ("ftp://h/v1/traces", "", "traces: endpoint must be http or https"),
            ("https://u:hunter2@h/v1/traces", "", "traces: endpoint must have no login"),
            ("https://h/v1/traces", "hunter2", "traces: headers must be name=value"),
            ("https://h/v1/traces", "a b=hunter2", "traces: headers must be name=value"),
            ("http://collector.example.com/v1/traces", "x=hunter2", "traces: endpoint must be https"),
        ] {
            let told = error(|config| {
                endpoint.clone_into(&mut config.endpoint);
                headers.clone_into(&mut config.headers);
            });
            assert!(told.contains(said) && !told.contains("hunter2"), "{endpoint}: {told}");
        }
    }

    #[test]
    fn missing_endpoint_or_zero_share_disables_tracing() {
        let config = shipped();
        assert!(start_traces(&config, "serve", String::new()).unwrap().is_none());
        let none = TracesConfig { endpoint: "http://127.0.0.1:4318/v1/traces".to_owned(), sample_ratio: 0.0, ..config };
        assert!(start_traces(&none, "serve", String::new()).unwrap().is_none());
    }
}
