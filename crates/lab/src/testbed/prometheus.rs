//! A Prometheus that scrapes the processes of a run, with the rules that are shipped: which alerts fire, and for how long.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use reqwest::Url;
use serde_json::{Value, json};
use tokio::{
    process::{Child, Command},
    time::sleep,
};

use super::{run_dir::RunDir, watchdog::ProcessWatchdog};

const RULES: [(&str, &str); 2] = [
    ("alerts.yml", include_str!("../../../../deploy/prometheus/alerts.yml")),
    ("kpis.yml", include_str!("../../../../deploy/prometheus/kpis.yml")),
];
/// Between scrapes, and between evaluations of the rules.
const INTERVAL_S: u64 = 5;
/// What it may take to listen and to have scraped each process.
const START_WAIT: Duration = Duration::from_secs(60);
const START_POLL: Duration = Duration::from_millis(100);
const QUERY_TIMEOUT: Duration = Duration::from_secs(30);

// Dropped in this order: the process before what ends it in our place, and its data.
/// Dropping it ends the process.
#[derive(Debug)]
pub(crate) struct PrometheusServer {
    _process: Child,
    _watchdog: ProcessWatchdog,
    _dir: RunDir,
    base: String,
    client: reqwest::Client,
    begun: Instant,
}

impl PrometheusServer {
    /// Starts it, and waits until it has scraped each of these addresses.
    pub(crate) async fn start(targets: &[String]) -> anyhow::Result<Self> {
        let dir = RunDir::create_unique()?;
        let (config, log) = (dir.path().join("prometheus.yml"), dir.path().join("prometheus.log"));
        for (name, rules) in RULES {
            fs::write(dir.path().join(name), rules).with_context(|| format!("cannot write {name}"))?;
        }
        fs::write(&config, write_config(targets)).with_context(|| format!("cannot write {}", config.display()))?;
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()))
            .arg("--web.listen-address=127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .context("cannot run prometheus: `make setup` installs it")?;
        let mut watchdog = ProcessWatchdog::start(dir.path()).context("cannot start /bin/sh")?;
        watchdog.watch_pid(process.id().context("prometheus has no pid")?);
        let client = dispatch::outbound::client_builder().no_proxy().timeout(QUERY_TIMEOUT).build();
        let client = client.context("cannot make an HTTP client")?;
        let begun = Instant::now();
        let mut started =
            Self { _process: process, _watchdog: watchdog, _dir: dir, base: String::new(), client, begun };
        while !started.scrapes_all(&log, targets.len()).await {
            if begun.elapsed() > START_WAIT {
                let said = fs::read_to_string(&log).unwrap_or_default();
                bail!("Prometheus does not scrape all of {targets:?} within {START_WAIT:?}; it says:\n{said}");
            }
            sleep(START_POLL).await;
        }
        Ok(started)
    }

    /// Returns whether it listens, and has scraped so many processes.
    async fn scrapes_all(&mut self, log: &Path, targets: usize) -> bool {
        if self.base.is_empty() {
            let said = fs::read_to_string(log).unwrap_or_default();
            let Some(address) = find_address(&said) else { return false };
            self.base = format!("http://{address}");
        }
        let up = self.query("sum(up)").await.unwrap_or_default();
        up.first().and_then(read_value).is_some_and(|up| up == targets as u64)
    }

    /// Returns for how many seconds each alert has fired, to one interval.
    pub(crate) async fn fired_alerts(&self) -> anyhow::Result<BTreeMap<String, u64>> {
        let window = self.begun.elapsed().as_secs() + INTERVAL_S;
        let query = format!("max by (alertname) (count_over_time(ALERTS{{alertstate=\"firing\"}}[{window}s]))");
        let series = self.query(&query).await.context("Prometheus does not say which alerts fired")?;
        let seconds = |series: &Value| {
            let name = series["metric"]["alertname"].as_str()?;
            Some((name.to_owned(), read_value(series)? * INTERVAL_S))
        };
        Ok(series.iter().filter_map(seconds).collect())
    }

    /// The series of a query, as of now.
    async fn query(&self, query: &str) -> anyhow::Result<Vec<Value>> {
        let url = Url::parse_with_params(&format!("{}/api/v1/query", self.base), [("query", query)])?;
        let answer: Value = self.client.get(url).send().await?.error_for_status()?.json().await?;
        let series = answer["data"]["result"].as_array().context("an answer without a result")?;
        Ok(series.clone())
    }
}

/// YAML, of which JSON is a part.
fn write_config(targets: &[String]) -> String {
    let interval = format!("{INTERVAL_S}s");
    let config = json!({
        "global": { "scrape_interval": interval, "evaluation_interval": interval },
        "rule_files": RULES.map(|(name, _)| name),
        "scrape_configs": [{ "job_name": "dispatchq", "static_configs": [{ "targets": targets }] }],
    });
    config.to_string()
}

/// Where it listens, as its log says.
fn find_address(log: &str) -> Option<&str> {
    let line = log.lines().find(|line| line.contains("Listening on"))?;
    Some(line.split_once("address=")?.1.split_whitespace().next()?.trim_matches('"'))
}

/// The whole number that a series of an instant query has.
fn read_value(series: &Value) -> Option<u64> {
    series["value"][1].as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_says_where_it_listens() {
        let old = "ts=2026-01-09T08:00:00Z caller=tls_config.go:313 level=info component=web msg=\"Listening on\" address=127.0.0.1:9091\n";
        let new = "time=2026-01-09T08:00:00Z level=INFO source=tls_config.go:347 msg=\"Listening on\" component=web address=127.0.0.1:9092\n";
        assert_eq!(find_address(old), Some("127.0.0.1:9091"));
        assert_eq!(find_address(&format!("level=INFO msg=\"Starting\"\n{new}")), Some("127.0.0.1:9092"));
        assert_eq!(find_address("level=INFO msg=\"Starting\"\n"), None);
    }

    #[test]
    fn an_instant_query_has_one_value_for_each_series() {
        let series = json!({ "metric": { "alertname": "QueueStuck" }, "value": [1_767_945_600.123, "12"] });
        assert_eq!(read_value(&series), Some(12));
        assert_eq!(read_value(&json!({ "metric": {}, "value": [0, "NaN"] })), None);
    }
}
