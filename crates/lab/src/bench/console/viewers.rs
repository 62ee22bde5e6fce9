//! People who look at pages: each has a page open that keeps itself fresh as its script does, with a stream that tells of changes.

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

/// A page that is told of changes asks by itself this often, as assets/console.js has it.
const UNASKED: Duration = Duration::from_secs(30);
/// After a stream that ended another is opened.
const NEXT_STREAM: Duration = Duration::from_secs(2);
const CHANGE: &str = "event: change";

/// What viewers did and met.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct ViewerTally {
    /// Times a page was asked for again.
    pub(super) refreshes: u64,
    /// Changes that streams told of.
    pub(super) changes: u64,
    /// Pages and streams that did not come.
    pub(super) failures: u64,
    pub(super) first_failure: Option<String>,
}

impl ViewerTally {
    fn record_failure(&mut self, failure: String) {
        self.failures += 1;
        self.first_failure.get_or_insert(failure);
    }
}

/// People who are signed in.
#[derive(Debug)]
pub(super) struct Viewers {
    /// With the page that each looks at.
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
    /// Signs in so many operators, each with a key of its own. They look at the pages of their menu, one after the other.
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

    /// Has all open their pages and streams, and look until what is returned is dropped.
    pub(super) async fn look(&self) -> anyhow::Result<LookingViewers> {
        let mut opening = JoinSet::new();
        for (browser, path) in self.people.clone() {
            opening.spawn(OpenPage::open(browser, path, self.tally.clone()));
        }
        let mut looking = JoinSet::new();
        while let Some(opened) = opening.join_next().await {
            match opened.context("a viewer panicked")? {
                Ok(page) => looking.spawn(page.keep_fresh()),
                Err(failure) => bail!("a viewer sees no page: {failure}"),
            };
        }
        Ok(LookingViewers { _pages: looking })
    }

    /// What all of them did and met so far.
    pub(super) fn tally(&self) -> ViewerTally {
        self.tally.lock().clone()
    }
}

/// Dropping it closes their pages.
#[derive(Debug)]
pub(super) struct LookingViewers {
    _pages: JoinSet<()>,
}

/// A page in a browser.
struct OpenPage {
    browser: Browser,
    path: String,
    /// Zero: the page does not refresh itself.
    refresh: Duration,
    /// Address of its stream; empty: it has none.
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

    /// As assets/console.js does: no more often than the page's interval, and with a stream when something has changed.
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
                        // Between two streams changes may have been missed.
                        Ok(stream) => (self.stream, is_stale) = (stream, true),
                        Err(failure) => self.tally.lock().record_failure(failure),
                    }
                }
            }
        }
    }
}

/// Returns whether what the stream says next is a change; `None` when it has ended. Without a stream it never returns.
async fn hear_change(stream: &mut Option<Response>) -> Option<bool> {
    let Some(stream) = stream else { return pending().await };
    let part = stream.chunk().await.ok()??;
    Some(String::from_utf8_lossy(&part).contains(CHANGE))
}
