//! Simulated viewers. Each has a page open that refreshes like the console's script, with a stream of changes.

use std::{future::pending, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use parking_lot::{Mutex, MutexGuard};
use reqwest::Response;
use serde::Serialize;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{browser::Browser, markup};
use crate::testbed::api::ApiClient;
use accounts::{api_keys::AccountRole, key_admin};
use app::App;

/// Refresh interval of a page with a working stream, as in assets/console.js.
const UNASKED: Duration = Duration::from_secs(30);
/// Pause before a stream that ended is opened again.
const NEXT_STREAM: Duration = Duration::from_secs(2);
const CHANGE: &str = "event: change";

/// Counts of what viewers did.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct ViewerTally {
    /// Refreshes of pages.
    pub(super) refreshes: u64,
    /// Changes reported by streams.
    pub(super) changes: u64,
    /// Pages and streams that failed.
    pub(super) failures: u64,
    pub(super) first_failure: Option<String>,
}

impl ViewerTally {
    fn record_failure(&mut self, failure: String) {
        self.failures += 1;
        self.first_failure.get_or_insert(failure);
    }
}

/// Signed-in viewers.
#[derive(Debug)]
pub(super) struct Viewers {
    /// Browsers, each with the page it shows.
    people: Vec<(Browser, String)>,
    tally: SharedTally,
}

#[derive(Debug, Clone, Default)]
struct SharedTally(Arc<Mutex<ViewerTally>>);

impl SharedTally {
    fn lock(&self) -> MutexGuard<'_, ViewerTally> {
        self.0.lock()
    }
}

impl Viewers {
    /// Signs in this many operators, each with its own key. They are spread over the pages of the menu.
    pub(super) async fn sign_in(app: &App, api: &ApiClient, count: u32) -> anyhow::Result<Self> {
        let mut people = Vec::new();
        let mut menu = Vec::new();
        for n in 0..count {
            let name = format!("viewer-{n}");
            let (_, key) = key_admin::create_permanent_key(&app.core.db, &name, AccountRole::Operator, None).await?;
            let browser = Browser::sign_in(api.base_url(), &app.config.console.path, &key).await?;
            if menu.is_empty() {
                let first = browser.open_page(browser.home()).await.map_err(anyhow::Error::msg)?;
                menu = markup::menu_links(&first.html);
            }
            let link = menu.get(n as usize % menu.len().max(1)).context("the menu of the console has no link")?;
            people.push((browser, link.path.clone()));
        }
        Ok(Self { people, tally: SharedTally::default() })
    }

    /// Opens the pages and streams of all viewers. They stay open until the returned value is dropped.
    pub(super) async fn look(&self) -> anyhow::Result<LookingViewers> {
        let mut opening = JoinSet::new();
        for (browser, path) in self.people.clone() {
            opening.spawn(OpenPage::open(browser, path, self.tally.clone()));
        }
        let mut looking = JoinSet::new();
        while let Some(opened) = opening.join_next().await {
            match opened.context("a viewer panicked")? {
                Ok(page) => looking.spawn(page.keep_fresh()),
                Err(failure) => bail!("a viewer got no page: {failure}"),
            };
        }
        Ok(LookingViewers { _pages: looking })
    }

    /// Returns the counts of all viewers so far.
    pub(super) fn tally(&self) -> ViewerTally {
        self.tally.lock().clone()
    }
}

/// Open pages of the viewers. Dropping it closes them.
#[derive(Debug)]
pub(super) struct LookingViewers {
    _pages: JoinSet<()>,
}

/// An open page in a browser.
struct OpenPage {
    browser: Browser,
    path: String,
    /// Refresh interval. Zero if the page does not refresh itself.
    refresh: Duration,
    /// Address of its stream. Empty if there is none.
    changes: String,
    stream: Option<Response>,
    tally: SharedTally,
}

impl OpenPage {
    async fn open(browser: Browser, path: String, tally: SharedTally) -> Result<Self, String> {
        let page = browser.open_page(&path).await?;
        let refresh_s = markup::attribute(&page.html, "data-refresh").parse().unwrap_or_default();
        let changes = markup::attribute(&page.html, "data-changes");
        let stream = if changes.is_empty() { None } else { browser.open_stream(&changes).await? };
        Ok(Self { browser, path, refresh: Duration::from_secs(refresh_s), changes, stream, tally })
    }

    /// Refreshes the page like assets/console.js: at most once per interval, and with a stream only after a change.
    async fn keep_fresh(mut self) {
        if self.refresh.is_zero() {
            pending::<()>().await;
        }
        let (mut asked, mut is_stale) = (Instant::now(), false);
        let mut next_stream = asked;
        loop {
            let is_told = self.stream.is_some() && !is_stale;
            let wait = if is_told { UNASKED.max(self.refresh) } else { self.refresh };
            let wants_stream = self.stream.is_none() && !self.changes.is_empty();
            tokio::select! {
                () = sleep_until(asked + wait) => {
                    (asked, is_stale) = (Instant::now(), false);
                    let answer = self.browser.refresh_page(&self.path).await;
                    let mut tally = self.tally.lock();
                    tally.refreshes += 1;
                    if let Err(failure) = answer {
                        tally.record_failure(failure);
                    }
                }
                heard = hear_change(&mut self.stream) => match heard {
                    Some(is_change) => {
                        is_stale |= is_change;
                        self.tally.lock().changes += u64::from(is_change);
                    }
                    None => {
                        self.stream = None;
                        next_stream = Instant::now() + NEXT_STREAM;
                    }
                },
                () = sleep_until(next_stream), if wants_stream => {
                    next_stream = Instant::now() + NEXT_STREAM;
                    match self.browser.open_stream(&self.changes).await {
                        // Changes may have been missed between two streams.
                        Ok(stream) => (self.stream, is_stale) = (stream, true),
                        Err(failure) => self.tally.lock().record_failure(failure),
                    }
                }
            }
        }
    }
}

/// Returns whether the next part of the stream is a change. `None` when the stream has ended. Without a stream it never
/// returns.
async fn hear_change(stream: &mut Option<Response>) -> Option<bool> {
    let Some(stream) = stream else { return pending().await };
    let part = stream.chunk().await.ok()??;
    Some(String::from_utf8_lossy(&part).contains(CHANGE))
}
