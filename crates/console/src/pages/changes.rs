//! Changes: a stream of server-sent events that says when rows of a page have changed. The page then asks for its part again, as it
//! does without a stream. A stream that cannot be had, or breaks, costs nothing but the wait until the page asks by itself.

use std::{convert::Infallible, time::Duration};

use axum::{
    extract::{Extension, Query, State, rejection::QueryRejection},
    http::{HeaderMap, HeaderName, StatusCode},
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use super::roles::STAFF;
use crate::{
    cookie::{CookieKind, Transport},
    form::read_query,
    language::both,
    page_error::PageError,
    session::SignedIn,
};
use accounts::sessions;
use app::App;
use desk::reports::page_changes::ChangeTopic;

/// Then the browser asks for another stream, and the session is looked up again.
const LONGEST: Duration = Duration::from_secs(300);
/// How often a stream checks that its session still lasts. It also checks before it tells of a change.
const CHECK_EVERY: Duration = Duration::from_secs(5);
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
    Extension(transport): Extension<Transport>,
    headers: HeaderMap,
    query: Result<Query<ChangesQuery>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&STAFF)?;
    let ChangesQuery { of } = read_query(query)?;
    let unknown = both("No page shows rows of this kind.", "Tidak ada halaman yang menampilkan baris jenis ini.");
    let topic = ChangeTopic::parse(&of).ok_or(PageError::NotFound(unknown))?;
    let Some(watcher) = app.desk.changes.watch_topic(topic, &app.core.pages, &app.core.loops) else {
        // The browser asks for no stream any more; the page asks by itself.
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    let token = transport.read_cookie(CookieKind::Session, &headers).unwrap_or_default();
    let end = Instant::now() + LONGEST;
    let begin = stream::once(async { Ok::<_, Infallible>(Event::default().retry(RETRY).comment("changes")) });
    let changes = stream::unfold((app, token, watcher), move |(app, token, mut watcher)| async move {
        loop {
            let pause_end = end.min(Instant::now() + CHECK_EVERY);
            let waited = timeout_at(pause_end, watcher.wait_for_change()).await;
            if waited == Ok(false) || Instant::now() >= end || has_ended(&app, &token).await {
                return None;
            }
            if waited.is_ok() {
                let change = Event::default().event("change").data("rows");
                return Some((Ok(change), (app, token, watcher)));
            }
        }
    });
    let events = Sse::new(begin.chain(changes)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    // Proxies pass each event on at once.
    Ok(([(HeaderName::from_static("x-accel-buffering"), "no")], events).into_response())
}

/// Returns whether the session is over. While Postgres does not answer, the stream goes on.
async fn has_ended(app: &App, token: &str) -> bool {
    matches!(sessions::find_session(&app.core.pages, token).await, Ok(None))
}
