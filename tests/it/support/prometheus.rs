//! A Prometheus that scrapes the processes of a test, with the shipped rules.

use std::time::{SystemTime, UNIX_EPOCH};

use reqwest::Url;
use serde_json::Value;
use servers::{PrometheusServer, ScrapeSettings};

use test_support::{eventually, secs};

/// A Prometheus that scrapes every second. Dropping it stops the process.
pub(crate) struct Prometheus {
    server: PrometheusServer,
    client: reqwest::Client,
    begun_s: u64,
}

impl Prometheus {
    /// Starts Prometheus and waits until it has scraped each of these addresses.
    pub(crate) async fn start(targets: &[&str]) -> Self {
        let settings = ScrapeSettings {
            targets: targets.iter().map(|&target| target.to_owned()).collect(),
            rules: vec![
                ("alerts.yml", include_str!("../../../deploy/prometheus/alerts.yml")),
                ("kpis.yml", include_str!("../../../deploy/prometheus/kpis.yml")),
            ],
            interval: secs(1),
        };
        let begun_s = unix_time();
        let server = PrometheusServer::start(&settings).await.unwrap();
        let started = Self { server, client: foundation::outbound::build_client(secs(30)).unwrap(), begun_s };
        let up = || async {
            started
                .try_series("sum(up)")
                .await
                .is_some_and(|found| last_value(&found) == Some(targets.len().to_string()))
        };
        eventually("Prometheus scrapes all targets", up).await;
        started
    }

    /// Returns the series of a query since the start, as a panel draws them. Panics when the query is invalid.
    pub(crate) async fn series(&self, query: &str) -> Vec<Value> {
        self.try_series(query).await.unwrap_or_else(|| panic!("Prometheus refuses {query}"))
    }

    async fn try_series(&self, query: &str) -> Option<Vec<Value>> {
        let (start, end) = (self.begun_s.to_string(), unix_time().to_string());
        let words = [("query", query), ("start", start.as_str()), ("end", end.as_str()), ("step", "1")];
        let url = Url::parse_with_params(&format!("{}/api/v1/query_range", self.server.url()), words).unwrap();
        let answer = self.client.get(url).send().await.ok()?;
        let body: Value = answer.json().await.ok()?;
        body["data"]["result"].as_array().cloned()
    }
}

/// Returns the latest value of the first series, as Prometheus writes it.
pub(crate) fn last_value(series: &[Value]) -> Option<String> {
    series.first()?["values"].as_array()?.last()?[1].as_str().map(str::to_owned)
}

fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}
