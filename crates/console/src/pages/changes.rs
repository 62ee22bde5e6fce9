//! Stream of server-sent events that reports changed rows. The page then requests its part again, as it does without a
//! stream. If the stream is not available or breaks, the page updates only at its regular refresh.

use std::{convert::Infallible, time::Duration};

use axum::{
    extract::{Extension, Query, State, rejection::QueryRejection},
    http::{HeaderMap, HeaderName, StatusCode},
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use foundation::core::Core;
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use tokio::time::Instant;

use super::roles::STAFF;
use crate::{
    catalogue::tr,
    cookie::{CookieKind, Transport},
    form::read_query,
    page_error::PageError,
    session::SignedIn,
};
use accounts::sessions;
use app::App;
use desk::reports::page_changes::ChangeTopic;
use foundation::poll_board::Wakeup;

/// Maximum duration of a stream. The browser then opens another one, which looks up the session again.
const LONGEST: Duration = Duration::from_secs(300);
/// Interval at which a stream checks that its session is still valid. It also checks before it reports a change.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// Time after which the browser reconnects.
const RETRY: Duration = Duration::from_secs(2);
/// Interval of keep-alive events. Proxies close a stream that is silent for longer.
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
    let unknown = tr("problem.no_page_shows_changes");
    let topic = ChangeTopic::parse(&of).ok_or(PageError::NotFound(unknown))?;
    let Some(watcher) = app.desk.changes.enter(&app.core.pages, &app.core.loops, &topic) else {
        // With this status the browser stops opening streams. The page refreshes by itself.
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    let token = transport.read_cookie(CookieKind::Session, &headers).unwrap_or_default();
    let end = Instant::now() + LONGEST;
    let begin = stream::once(async { Ok::<_, Infallible>(Event::default().retry(RETRY).comment("changes")) });
    let changes = stream::unfold((app, token, watcher), move |(app, token, mut watcher)| async move {
        loop {
            let pause_end = end.min(Instant::now() + CHECK_EVERY);
            let wakeup = watcher.wait(pause_end).await;
            if wakeup == Wakeup::Closed || Instant::now() >= end || has_ended(&app.core, &token).await {
                return None;
            }
            if wakeup == Wakeup::Changed {
                let change = Event::default().event("change").data("rows");
                return Some((Ok(change), (app, token, watcher)));
            }
        }
    });
    let events = Sse::new(begin.chain(changes)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    // The header makes proxies forward each event immediately.
    Ok(([(HeaderName::from_static("x-accel-buffering"), "no")], events).into_response())
}

/// Returns whether the session has ended. While Postgres does not answer, the stream continues.
async fn has_ended(core: &Core, token: &str) -> bool {
    matches!(sessions::find_session(&core.pages, token).await, Ok(None))
}
