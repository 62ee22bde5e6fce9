//! A Prometheus that scrapes processes of a test, with the rules that are shipped.

use std::{
    fs::{self, File},
    path::Path,
    process::{Child, Command, Stdio},
    time::{SystemTime, UNIX_EPOCH},
};

use reqwest::Url;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{eventually, secs};

/// Scrapes each second. Dropping it ends the process.
pub(crate) struct Prometheus {
    process: Child,
    dir: TempDir,
    base: String,
    client: reqwest::Client,
    begun_s: u64,
}

impl Prometheus {
    /// Starts it, and waits until it has scraped each of these addresses.
    pub(crate) async fn start(targets: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/prometheus");
        // YAML, of which JSON is a part.
        let config = json!({
            "global": { "scrape_interval": "1s", "evaluation_interval": "1s" },
            "rule_files": [rules.join("alerts.yml"), rules.join("kpis.yml")],
            "scrape_configs": [{ "job_name": "dispatchq", "static_configs": [{ "targets": targets }] }],
        });
        let file = dir.path().join("prometheus.yml");
        fs::write(&file, config.to_string()).unwrap();
        let log = dir.path().join("log");
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()))
            .arg("--web.listen-address=127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap_or_else(|e| {
                panic!("prometheus cannot be run ({e}): `make setup` installs it, or your package manager")
            });
        let client = dispatch::outbound::build_client(secs(30)).unwrap();
        let mut started = Self { process, dir, base: String::new(), client, begun_s: unix_time() };
        eventually("Prometheus listens", || async { started.listens_on().is_some() }).await;
        started.base = format!("http://{}", started.listens_on().unwrap());
        let up = || async {
            started
                .try_series("sum(up)")
                .await
                .is_some_and(|found| last_value(&found) == Some(targets.len().to_string()))
        };
        eventually("Prometheus scrapes all targets", up).await;
        started
    }

    fn listens_on(&self) -> Option<String> {
        let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        let line = log.lines().find(|line| line.contains("msg=\"Listening on\""))?;
        Some(line.split_once("address=")?.1.trim().to_owned())
    }

    /// The series that a query has had since the start, as a panel draws them. Panics when the query is wrong.
    pub(crate) async fn series(&self, query: &str) -> Vec<Value> {
        self.try_series(query).await.unwrap_or_else(|| panic!("Prometheus refuses {query}"))
    }

    async fn try_series(&self, query: &str) -> Option<Vec<Value>> {
        let (start, end) = (self.begun_s.to_string(), unix_time().to_string());
        let words = [("query", query), ("start", start.as_str()), ("end", end.as_str()), ("step", "1")];
        let url = Url::parse_with_params(&format!("{}/api/v1/query_range", self.base), words).unwrap();
        let answer = self.client.get(url).send().await.ok()?;
        let body: Value = answer.json().await.ok()?;
        body["data"]["result"].as_array().cloned()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The latest value of the first series, as Prometheus writes it.
pub(crate) fn last_value(series: &[Value]) -> Option<String> {
    series.first()?["values"].as_array()?.last()?[1].as_str().map(str::to_owned)
}

fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}
