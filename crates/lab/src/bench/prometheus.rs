//! A Prometheus with the shipped rules that scrapes a run. It shows fired alerts and memory of processes as operators
//! see them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::Context;
use reqwest::Url;
use serde::Serialize;
use serde_json::Value;
use servers::{PrometheusServer, ScrapeSettings};
use tokio::time::{Instant, sleep};

use super::spread::round_to_digits;

/// Shipped rules from deploy/prometheus.
const RULES: [(&str, &str); 2] = [
    ("alerts.yml", include_str!("../../../../deploy/prometheus/alerts.yml")),
    ("kpis.yml", include_str!("../../../../deploy/prometheus/kpis.yml")),
];
const SCRAPE_INTERVAL: Duration = Duration::from_secs(5);
/// Time to wait for the first scrape of each process, because a short run may end before it.
const SCRAPE_WAIT: Duration = Duration::from_secs(20);
const SCRAPE_POLL: Duration = Duration::from_millis(250);
const QUERY_TIMEOUT: Duration = Duration::from_secs(30);
const MEMORY: &str = "process_resident_memory_bytes";

/// A running Prometheus. Dropping it ends it.
#[derive(Debug)]
pub(super) struct RunPrometheus {
    server: PrometheusServer,
    client: reqwest::Client,
    targets: usize,
    started: Instant,
}

/// Data of the whole run.
#[derive(Debug, Clone, Serialize)]
pub(super) struct SeenByPrometheus {
    /// Seconds that each alert fired, by name. An alert that waits for its `for` does not fire.
    pub(super) alerts_fired_s: BTreeMap<String, f64>,
    /// Memory of each process, in MiB.
    pub(super) memory_mib: BTreeMap<String, MemoryOverTime>,
    /// Maximum p99 of lateness within any two minutes, in milliseconds.
    pub(super) lateness_p99_ms_max: Option<f64>,
    /// Maximum number of orders that were open at once.
    pub(super) open_orders_max: Option<f64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct MemoryOverTime {
    /// A minute after the start, and in the middle of the run.
    pub(super) first: f64,
    pub(super) middle: f64,
    pub(super) last: f64,
    pub(super) max: f64,
}

impl RunPrometheus {
    /// Starts a Prometheus that scrapes these addresses.
    pub(super) async fn start(targets: Vec<String>) -> anyhow::Result<Self> {
        let count = targets.len();
        let settings = ScrapeSettings { targets, rules: RULES.to_vec(), interval: SCRAPE_INTERVAL };
        let server = PrometheusServer::start(&settings).await.context("--prometheus needs a private Prometheus")?;
        let client = foundation::outbound::client_builder().no_proxy().timeout(QUERY_TIMEOUT).build()?;
        Ok(Self { server, client, targets: count, started: Instant::now() })
    }

    /// Reads the data since the start of the run.
    pub(super) async fn read_seen(&self) -> anyhow::Result<SeenByPrometheus> {
        let deadline = Instant::now() + SCRAPE_WAIT;
        while self.query_by("instance", MEMORY).await?.len() < self.targets && Instant::now() < deadline {
            sleep(SCRAPE_POLL).await;
        }
        let range = format!("[{}s]", self.started.elapsed().as_secs().max(1));
        let each_s = SCRAPE_INTERVAL.as_secs();
        let alerts = format!("sum by (alertname) (count_over_time(ALERTS{{alertstate=\"firing\"}}{range})) * {each_s}");
        let lateness = format!(
            "max_over_time((1000 * histogram_quantile(0.99, sum by (le) \
             (rate(dispatchq_job_lateness_seconds_bucket[2m])))){}:{each_s}s])",
            range.trim_end_matches(']')
        );
        let open = format!("max(max_over_time(sum(max by (status) (dispatchq_orders_open)){}:{each_s}s]))", {
            range.trim_end_matches(']')
        });
        Ok(SeenByPrometheus {
            alerts_fired_s: self.query_by("alertname", &alerts).await?,
            memory_mib: self.read_memory().await?,
            lateness_p99_ms_max: self.query_one(&lateness).await?.map(|ms| round_to_digits(ms, 1)),
            open_orders_max: self.query_one(&open).await?,
        })
    }

    /// Returns the names of the alerts that fire now.
    pub(super) async fn firing_alerts(&self) -> anyhow::Result<BTreeSet<String>> {
        Ok(self.query_by("alertname", "ALERTS{alertstate=\"firing\"}").await?.into_keys().collect())
    }

    async fn read_memory(&self) -> anyhow::Result<BTreeMap<String, MemoryOverTime>> {
        let seconds = self.started.elapsed().as_secs();
        // Prometheus refuses an offset of zero.
        let ago = |s: u64| format!("{MEMORY} offset {}s", s.max(1));
        let first = self.query_by("instance", &ago(seconds.saturating_sub(60))).await?;
        let middle = self.query_by("instance", &ago(seconds / 2)).await?;
        let last = self.query_by("instance", MEMORY).await?;
        let max = self.query_by("instance", &format!("max_over_time({MEMORY}[{}s])", seconds.max(1))).await?;
        let mib = |bytes: Option<&f64>| round_to_digits(bytes.copied().unwrap_or_default() / f64::from(1 << 20), 1);
        Ok(max
            .keys()
            .map(|process| {
                let over_time = MemoryOverTime {
                    first: mib(first.get(process)),
                    middle: mib(middle.get(process)),
                    last: mib(last.get(process)),
                    max: mib(max.get(process)),
                };
                (process.clone(), over_time)
            })
            .collect())
    }

    async fn query_one(&self, query: &str) -> anyhow::Result<Option<f64>> {
        Ok(self.query_by("", query).await?.into_values().next().filter(|value| value.is_finite()))
    }

    /// Returns the current value of each series, by this label.
    async fn query_by(&self, label: &str, query: &str) -> anyhow::Result<BTreeMap<String, f64>> {
        let url = Url::parse_with_params(&format!("{}/api/v1/query", self.server.url()), [("query", query)])?;
        let answer = self.client.get(url).send().await.context("Prometheus does not answer")?;
        let answer = answer.error_for_status().with_context(|| format!("Prometheus refuses {query}"))?;
        let body: Value = answer.json().await?;
        Ok(series_by(label, &body))
    }
}

fn series_by(label: &str, answer: &Value) -> BTreeMap<String, f64> {
    let series = answer["data"]["result"].as_array().map(Vec::as_slice).unwrap_or_default();
    let value = |series: &Value| series["value"][1].as_str()?.parse().ok();
    let of = |series: &Value| series["metric"][label].as_str().unwrap_or_default().to_owned();
    series.iter().filter_map(|series| Some((of(series), value(series)?))).collect()
}
