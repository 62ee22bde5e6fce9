//! Visits of pages, and their times.

use super::{browser::Browser, pages::ConsolePage};
use crate::bench::spread::{SamplePercentiles, duration_micros};

/// Visits of one page.
#[derive(Debug, Clone, Default)]
pub(super) struct PageVisits {
    /// Times in microseconds, from the request to the last byte.
    samples: Vec<i64>,
    /// Size of the largest answer.
    pub(super) bytes: usize,
    /// Visits without a valid answer.
    pub(super) failures: u32,
    pub(super) first_failure: Option<String>,
}

impl PageVisits {
    pub(super) fn percentiles(&self) -> SamplePercentiles {
        SamplePercentiles::from_samples(self.samples.clone())
    }

    pub(super) fn record_failure(&mut self, failure: String) {
        self.failures += 1;
        self.first_failure.get_or_insert(failure);
    }
}

/// Visits all pages in turn, this many times each.
pub(super) async fn visit_pages(browser: &Browser, pages: &[ConsolePage], visits: u32, seen: &mut [PageVisits]) {
    for visit in 0..visits {
        for (page, seen) in pages.iter().zip(seen.iter_mut()) {
            match browser.open_page(page.path_of_visit(visit)).await {
                Ok(loaded) => {
                    seen.samples.push(duration_micros(loaded.took));
                    seen.bytes = seen.bytes.max(loaded.html.len());
                }
                Err(failure) => seen.record_failure(failure),
            }
        }
    }
}
