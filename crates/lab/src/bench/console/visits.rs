//! Visits of pages: how long each takes, and what it asks Postgres.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::{Instant, sleep};

use super::{browser::Browser, pages::ConsolePage};
use crate::bench::{
    spread::{SamplePercentiles, duration_micros},
    statement_counts::{read_statements, reset_statements},
};
use foundation::db::Pool;

/// Visits over which statements are counted.
const COUNTED: u32 = 10;
/// Counts of a page that seems to ask too much: a burst of other work falls into one of them, what the page asks is in each.
const COUNTS: u32 = 3;
/// How long is listened to what processes ask by themselves.
const QUIET: Duration = Duration::from_secs(3);
/// Maximum statements of one visit. More of them are a violation.
pub(super) const MOST_STATEMENTS: i64 = 8;
/// Each begins or ends a transaction, and asks nothing.
const FRAMES: [&str; 2] = ["BEGIN", "COMMIT"];

/// What was seen of one page.
#[derive(Debug, Clone, Default)]
pub(super) struct PageVisits {
    /// Microseconds from the request to the last byte.
    samples: Vec<i64>,
    /// Statements of one visit.
    pub(super) statements: i64,
    /// Visits that were answered otherwise.
    pub(super) failures: u32,
    pub(super) first_failure: Option<String>,
}

impl PageVisits {
    pub(super) fn percentiles(&self) -> SamplePercentiles {
        SamplePercentiles::from_samples(self.samples.clone())
    }

    #[cfg(test)]
    pub(super) fn from_millis(samples: &[i64]) -> Self {
        Self { samples: samples.iter().map(|ms| ms * 1000).collect(), ..Self::default() }
    }

    fn record_failure(&mut self, failure: String) {
        self.failures += 1;
        self.first_failure.get_or_insert(failure);
    }
}

/// How often a second each statement is issued while no page is looked at.
#[derive(Debug, Default)]
pub(super) struct QuietRates(BTreeMap<String, f64>);

impl QuietRates {
    pub(super) async fn measure(db: &Pool) -> anyhow::Result<Self> {
        reset_statements(db).await?;
        let begun = Instant::now();
        sleep(QUIET).await;
        let (calls, took) = (read_statements(db).await?, begun.elapsed());
        Ok(Self(calls.into_iter().map(|(name, calls)| (name, calls as f64 / took.as_secs_f64())).collect()))
    }

    /// Statements of one visit, of so many visits that took so long together. What processes ask by themselves is taken off.
    fn statements_per_visit(&self, calls: &[(String, i64)], visits: u32, took: Duration) -> i64 {
        let asked = calls.iter().filter(|(name, _)| !FRAMES.contains(&name.as_str()));
        let of_visits = asked.map(|(name, calls)| {
            let own = self.0.get(name).copied().unwrap_or_default() * took.as_secs_f64();
            // A statement that fewer than half of the visits make is none of the page's.
            ((*calls as f64 - own) / f64::from(visits)).round().max(0.0) as i64
        });
        of_visits.sum()
    }
}

/// Counts the statements of each page, on an installation where only its own processes are at work.
pub(super) async fn count_page_statements(
    db: &Pool,
    browser: &Browser,
    pages: &[ConsolePage],
) -> anyhow::Result<Vec<PageVisits>> {
    let quiet = QuietRates::measure(db).await?;
    let mut seen = Vec::new();
    for page in pages {
        let mut visits = PageVisits::default();
        // Statements are prepared, caches filled.
        if let Err(failure) = browser.open_page(page.path_of_visit(0)).await {
            visits.record_failure(failure);
        }
        visits.statements = i64::MAX;
        for _ in 0..COUNTS {
            let counted = count_visits(db, browser, page, &quiet, &mut visits).await?;
            visits.statements = visits.statements.min(counted);
            if visits.statements <= MOST_STATEMENTS {
                break;
            }
        }
        seen.push(visits);
    }
    Ok(seen)
}

/// Returns the statements of one visit, as counted over some.
async fn count_visits(
    db: &Pool,
    browser: &Browser,
    page: &ConsolePage,
    quiet: &QuietRates,
    visits: &mut PageVisits,
) -> anyhow::Result<i64> {
    reset_statements(db).await?;
    let begun = Instant::now();
    for _ in 0..COUNTED {
        if let Err(failure) = browser.open_page(page.path_of_visit(0)).await {
            visits.record_failure(failure);
        }
    }
    let (took, calls) = (begun.elapsed(), read_statements(db).await?);
    Ok(quiet.statements_per_visit(&calls, COUNTED, took))
}

/// Visits all pages in turn, so many times each.
pub(super) async fn visit_pages(browser: &Browser, pages: &[ConsolePage], visits: u32, seen: &mut [PageVisits]) {
    for visit in 0..visits {
        for (page, seen) in pages.iter().zip(seen.iter_mut()) {
            match browser.open_page(page.path_of_visit(visit)).await {
                Ok(loaded) => seen.samples.push(duration_micros(loaded.took)),
                Err(failure) => seen.record_failure(failure),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_processes_ask_by_themselves_is_no_statement_of_a_page() {
        let quiet = QuietRates(BTreeMap::from([("heartbeat".to_owned(), 2.0)]));
        let calls = [("find session", 20), ("list", 40), ("heartbeat", 25), ("now and then", 3), ("BEGIN", 20)];
        let calls = calls.map(|(name, calls)| (name.to_owned(), calls));
        let of = |took| quiet.statements_per_visit(&calls, 20, Duration::from_secs(took));
        assert_eq!(of(10), 3);
        // Within no time 25 heartbeats are the page's.
        assert_eq!(of(0), 4);
    }
}
