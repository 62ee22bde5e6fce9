//! Parses the output of /metrics.

use std::collections::{BTreeMap, BTreeSet};

/// A metric with all its series.
#[derive(Debug, Default)]
pub struct Family {
    pub kind: String,
    pub help: String,
    /// Label names, except the bucket label `le`.
    pub labels: BTreeSet<String>,
}

/// Metrics of one process, or of several processes together.
#[derive(Debug, Default)]
pub struct Scrape {
    pub families: BTreeMap<String, Family>,
    /// Values by series. A series is `name{label="value",..}` with the labels sorted by name.
    series: BTreeMap<String, f64>,
    /// Label values, by label.
    pub label_values: BTreeMap<String, BTreeSet<String>>,
}

impl Scrape {
    pub fn of(text: &str) -> Self {
        let mut scrape = Self::default();
        for line in text.lines().filter(|line| !line.is_empty()) {
            scrape.line(line);
        }
        scrape
    }

    /// Scrapes the process that serves its metrics at `host:port`.
    pub async fn ask(address: &str) -> Self {
        let answer = foundation::outbound::build_client(crate::secs(20)).unwrap();
        let answer = answer.get(format!("http://{address}/metrics")).send().await.unwrap();
        assert_eq!(answer.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
        Self::of(&answer.text().await.unwrap())
    }

    /// Returns the value of a series, or 0 when the series is missing.
    pub fn value(&self, series: &str) -> f64 {
        self.series.get(series).copied().unwrap_or(0.0)
    }

    pub fn has(&self, series: &str) -> bool {
        self.series.contains_key(series)
    }

    /// Returns the series with a nonzero value whose metric starts with `prefix`. Histograms appear with their counts.
    pub fn counted(&self, prefix: &str) -> Vec<String> {
        let is_count = |name: &str| name.starts_with(prefix) && !name.contains("_bucket{") && !name.contains("_sum");
        let counted = self.series.iter().filter(|(name, value)| **value != 0.0 && is_count(name));
        counted.map(|(name, value)| format!("{name} {value}")).collect()
    }

    /// Merges metrics, labels and help of another process. Values are not merged.
    pub fn and(mut self, other: Self) -> Self {
        for (name, family) in other.families {
            let mine = self.families.entry(name).or_default();
            mine.labels.extend(family.labels);
            (mine.kind, mine.help) = (family.kind, family.help);
        }
        for (label, values) in other.label_values {
            self.label_values.entry(label).or_default().extend(values);
        }
        self
    }

    fn line(&mut self, line: &str) {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            help.clone_into(&mut self.families.entry(name.to_owned()).or_default().help);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            kind.clone_into(&mut self.families.entry(name.to_owned()).or_default().kind);
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            self.sample(series, value.parse().unwrap());
        }
    }

    fn sample(&mut self, series: &str, value: f64) {
        let (name, labels) = series.strip_suffix('}').and_then(|s| s.split_once('{')).unwrap_or((series, ""));
        let labels: BTreeMap<_, _> = labels
            .split("\",")
            .filter_map(|pair| pair.split_once("=\""))
            .map(|(label, value)| (label, value.trim_end_matches('"')))
            .collect();
        let family = self.family_of(name);
        for (label, value) in labels.iter().filter(|(label, _)| **label != "le") {
            self.families.entry(family.clone()).or_default().labels.insert((*label).to_owned());
            self.label_values.entry((*label).to_owned()).or_default().insert((*value).to_owned());
        }
        let shown: Vec<_> = labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
        let shown = if shown.is_empty() { name.to_owned() } else { format!("{name}{{{}}}", shown.join(",")) };
        self.series.insert(shown, value);
    }

    /// Returns the metric that a series belongs to. Series of histograms have a suffix.
    fn family_of(&self, name: &str) -> String {
        let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| {
            let family = name.strip_suffix(suffix)?;
            self.families.get(family).filter(|f| f.kind == "histogram").map(|_| family)
        });
        of_histogram.unwrap_or(name).to_owned()
    }
}
