//! Changes: a stream of server-sent events that says when rows of a page have changed. The page then asks for its part again, as it
//! does without a stream. A stream that cannot be had, or breaks, costs nothing but the wait until the page asks by itself.

use std::{convert::Infallible, time::Duration};

use axum::{
    extract::{Query, State, rejection::QueryRejection},
    http::{HeaderName, StatusCode},
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use dispatch::{app::App, reports::page_changes::ChangeTopic};
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use super::STAFF;
use crate::{form::read_query, language::both, page::PageError, session::SignedIn};

/// Then the browser asks for another stream, and the session is looked up again.
const LONGEST: Duration = Duration::from_secs(300);
/// What the browser waits before it asks again.
const RETRY: Duration = Duration::from_secs(2);
/// A stream that says nothing for longer is cut by proxies.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ChangesQuery {
    of: String,
}

pub(crate) async fn stream_changes(
    State(app): State<App>,
    person: SignedIn,
    query: Result<Query<ChangesQuery>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&STAFF)?;
    let ChangesQuery { of } = read_query(query)?;
    let unknown = both("No page shows rows of this kind.", "Tidak ada halaman yang menampilkan baris jenis ini.");
    let topic = ChangeTopic::parse(&of).ok_or(PageError::NotFound(unknown))?;
    let Some(watcher) = app.changes.watch_topic(topic, &app.pages, &app.loops) else {
        // The browser asks for no stream any more; the page asks by itself.
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    let end = Instant::now() + LONGEST;
    let begin = stream::once(async { Ok::<_, Infallible>(Event::default().retry(RETRY).comment("changes")) });
    let changes = stream::unfold(watcher, move |mut watcher| async move {
        let has_changed = timeout_at(end, watcher.wait_for_change()).await.unwrap_or(false);
        has_changed.then(|| (Ok(Event::default().event("change").data("rows")), watcher))
    });
    let events = Sse::new(begin.chain(changes)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    // Proxies pass each event on at once.
    Ok(([(HeaderName::from_static("x-accel-buffering"), "no")], events).into_response())
}
