//! Logs, metrics and traces of a process.

use std::{ffi::OsStr, io::IsTerminal, time::Duration};

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tracing::Subscriber;
use tracing_subscriber::{
    EnvFilter, fmt, layer::SubscriberExt, registry, registry::LookupSpan, util::SubscriberInitExt,
};
use uuid::Uuid;

use crate::{
    config::{
        log::{LogConfig, LogFormat},
        traces::TracesConfig,
    },
    error::ServiceError,
    traces::{self, TraceSending},
};

const UPKEEP: Duration = Duration::from_secs(5);
/// Seconds, from a timer that fires on time to one that was delayed by an outage.
const LATENESS_BUCKETS: [f64; 14] =
    [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 10.0, 60.0, 600.0];
/// Seconds, for attempts and lifetimes of orders.
const ORDER_BUCKETS: [f64; 12] = [1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 90.0, 120.0, 300.0, 600.0, 1200.0, 1800.0];

/// Polls until the partner returns the job id; about 34 at most.
const POLL_BUCKETS: [f64; 8] = [1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 40.0];

/// Attempts until the search for a driver ends; about 15 in half an hour.
const ATTEMPT_BUCKETS: [f64; 10] = [1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0];

/// Seconds from an alert to its acknowledgement, from a minute to a week. They include 24 hours, the time that support
/// has.
const RESPONSE_BUCKETS: [f64; 9] = [60.0, 300.0, 900.0, 3_600.0, 14_400.0, 43_200.0, 86_400.0, 172_800.0, 604_800.0];

/// Writes logs to stderr, because stdout is for a command's output. `RUST_LOG` overrides the configuration.
pub fn init_logs(config: &LogConfig) -> Result<(), ServiceError> {
    install_subscriber(registry(), config.format, read_filter(config)?);
    Ok(())
}

/// Starts logs, and traces if they are configured. Returns the task that sends traces. `process` is `serve` or `work`.
/// Without a `replica` name, traces get a random one.
pub fn init_process(
    log: &LogConfig,
    traces: &TracesConfig,
    replica: &str,
    process: &'static str,
) -> Result<Option<TraceSending>, ServiceError> {
    let filter = read_filter(log)?;
    let instance = if replica.is_empty() { Uuid::now_v7().to_string() } else { replica.to_owned() };
    match traces::start_traces(traces, process, instance)? {
        Some((layer, sending)) => {
            install_subscriber(registry().with(layer), log.format, filter);
            Ok(Some(sending))
        }
        None => {
            install_subscriber(registry(), log.format, filter);
            Ok(None)
        }
    }
}

fn read_filter(config: &LogConfig) -> Result<EnvFilter, ServiceError> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(filter) if !filter.is_empty() => filter,
        _ => config.filter.clone(),
    };
    EnvFilter::try_new(&filter).map_err(|e| ServiceError::Unusable(format!("log.filter '{filter}' is not valid: {e}")))
}

/// Adds the log layer above `below`. The filter is outermost, so a disabled span or event reaches neither layer.
fn install_subscriber<S>(below: S, format: LogFormat, filter: EnvFilter)
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync + 'static,
{
    let logs = fmt::layer().with_writer(std::io::stderr);
    match format {
        LogFormat::Text => {
            let no_color = std::env::var_os("NO_COLOR");
            let logs = logs.with_ansi(has_colours(std::io::stderr().is_terminal(), no_color.as_deref()));
            below.with(logs).with(filter).init();
        }
        LogFormat::Json => below.with(logs.json().flatten_event(true)).with(filter).init(),
    }
}

/// Returns whether logs are coloured: on a terminal, unless NO_COLOR is set and not empty (no-color.org).
fn has_colours(is_terminal: bool, no_color: Option<&OsStr>) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty)
}

/// Installs the metrics recorder of the process. The returned handle renders `/metrics`. Requires a tokio runtime.
pub fn init_metrics() -> Result<PrometheusHandle, BuildError> {
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Prefix("dispatcher_".to_owned()), &ORDER_BUCKETS)?
        .set_buckets_for_metric(Matcher::Full("job_id_retrieval_duration_seconds".to_owned()), &ORDER_BUCKETS)?
        .set_buckets_for_metric(Matcher::Full("job_id_retrieval_attempts".to_owned()), &POLL_BUCKETS)?
        .set_buckets_for_metric(Matcher::Full("dispatchq_attempts_per_order".to_owned()), &ATTEMPT_BUCKETS)?
        .set_buckets_for_metric(Matcher::Full("dispatchq_alert_response_seconds".to_owned()), &RESPONSE_BUCKETS)?
        .set_buckets(&LATENESS_BUCKETS)?
        .install_recorder()?;
    // Without upkeep, a process that is never scraped would keep every histogram sample.
    tokio::spawn({
        let handle = handle.clone();
        async move {
            let mut every = tokio::time::interval(UPKEEP);
            loop {
                every.tick().await;
                handle.run_upkeep();
            }
        }
    });
    Ok(handle)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Fault S20d
    #[test]
    fn terminal_logs_are_coloured_unless_no_color() {
        assert!(has_colours(true, None));
        assert!(has_colours(true, Some(OsStr::new(""))));
        assert!(!has_colours(true, Some(OsStr::new("1"))));
        assert!(!has_colours(false, None));
    }
}
