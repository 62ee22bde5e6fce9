//! Parser of /metrics.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context;

const TIMEOUT: Duration = Duration::from_secs(20);

/// Reads the metrics of one process.
#[derive(Debug, Clone)]
pub(crate) struct MetricsReader {
    client: reqwest::Client,
    url: String,
}

/// Series of one scrape.
#[derive(Debug, Default)]
pub(crate) struct MetricsScrape(Vec<MetricsSeries>);

#[derive(Debug)]
struct MetricsSeries {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl MetricsReader {
    /// Creates a reader for an address such as `127.0.0.1:9090`.
    pub(crate) fn new(address: &str) -> anyhow::Result<Self> {
        let client = foundation::outbound::client_builder().no_proxy().timeout(TIMEOUT).build();
        Ok(Self { client: client.context("cannot create an HTTP client")?, url: format!("http://{address}/metrics") })
    }

    pub(crate) async fn scrape(&self) -> anyhow::Result<MetricsScrape> {
        let answer = self.client.get(&self.url).send().await.context("/metrics does not answer")?;
        let text = answer.error_for_status()?.text().await.context("the answer of /metrics was cut off")?;
        Ok(MetricsScrape::parse(&text))
    }
}

impl MetricsScrape {
    pub(crate) fn parse(text: &str) -> Self {
        Self(text.lines().filter(|line| !line.starts_with('#')).filter_map(MetricsSeries::parse).collect())
    }

    /// Returns the value of the first series with this name and these labels.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        self.series(name, labels).next().map(|series| series.value)
    }

    /// Sums the series with this name and these labels, by the value of another label.
    pub(crate) fn sum_by(&self, label: &str, name: &str, labels: &[(&str, &str)]) -> BTreeMap<String, f64> {
        let mut sums = BTreeMap::new();
        for series in self.series(name, labels) {
            let of = series.labels.get(label).cloned().unwrap_or_default();
            *sums.entry(of).or_default() += series.value;
        }
        sums
    }

    fn series(&self, name: &str, labels: &[(&str, &str)]) -> impl Iterator<Item = &MetricsSeries> {
        self.0.iter().filter(move |series| {
            let has = |(label, value): &(&str, &str)| series.labels.get(*label).is_some_and(|other| other == value);
            series.name == name && labels.iter().all(has)
        })
    }
}

impl MetricsSeries {
    /// Parses a line. Label values contain no quotes or commas here: they are areas, service types and fixed words.
    fn parse(line: &str) -> Option<Self> {
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = series.strip_suffix('}').and_then(|s| s.split_once('{')).unwrap_or((series, ""));
        let labels = labels.split(',').filter_map(|pair| {
            let (label, value) = pair.split_once('=')?;
            Some((label.to_owned(), value.trim_matches('"').to_owned()))
        });
        Some(Self { name: name.to_owned(), labels: labels.collect(), value: value.parse().ok()? })
    }
}
