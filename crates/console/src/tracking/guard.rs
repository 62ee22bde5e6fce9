//! Headers of every answer of the page for customers, and its error pages. The content policy is that of the console
//! ([`crate::guard`]).

use api::WithoutRequestId;
use app::App;
use askama::Template;
use axum::{
    extract::{Request, State},
    http::{HeaderValue, header::REFERRER_POLICY},
    middleware::Next,
    response::{Html, IntoResponse, Response},
};

use super::page::TrackingShell;
use crate::{
    guard::{identify_client, protect_answer},
    language::{LANGUAGE, Language},
    page_error::{PageError, PageProblem},
};

/// Outermost middleware of the page.
pub(super) async fn guard_request(State(app): State<App>, request: Request, next: Next) -> Response {
    let language = Language::of_request(request.headers());
    LANGUAGE.scope(language, answer_request(app, request, next)).await
}

async fn answer_request(app: App, mut request: Request, next: Next) -> Response {
    identify_client(&app, &mut request);
    let answer = if app.core.pages.is_overloaded() {
        PageError::Overloaded(app.accounts.limits.retry_wait()).into_response()
    } else {
        next.run(request).await
    };
    let mut answer = dress_answer(answer);
    protect_answer(&app, &mut answer);
    answer.headers_mut().insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    // All refusals must be equal, so they have no request id.
    answer.extensions_mut().insert(WithoutRequestId);
    answer
}

#[derive(Template)]
#[template(path = "track_problem.html")]
struct RefusedPage {
    shell: TrackingShell,
    text: String,
}

/// Renders an error page for an answer that carries a problem.
fn dress_answer(mut answer: Response) -> Response {
    let Some(PageProblem { title, text, .. }) = answer.extensions_mut().remove() else { return answer };
    let page = RefusedPage { shell: TrackingShell::new(title.into()), text };
    let body = page.render().unwrap_or_else(|_| title.into());
    (answer.status(), Html(body)).into_response()
}
