//! Headers of every answer of the driver page, and the requests that are refused before a handler runs. The rules are
//! those of the console ([`crate::guard`]).

use app::App;
use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Redirect, Response},
};

use super::{BASE, SIGN_IN_PATH};
use crate::{
    catalogue::tr,
    guard::{identify_client, is_same_origin, protect_answer},
    language::{LANGUAGE, Language},
    page,
    page_error::{PageError, PageProblem},
};

/// Outermost middleware of the driver page.
pub(super) async fn guard_request(State(app): State<App>, request: Request, next: Next) -> Response {
    let language = Language::of_request(request.headers());
    LANGUAGE.scope(language, answer_request(app, request, next)).await
}

async fn answer_request(app: App, mut request: Request, next: Next) -> Response {
    identify_client(&app, &mut request);
    let is_read = request.method().is_safe();
    let answer = if !is_read && !is_same_origin(request.headers()) {
        PageError::Forbidden(tr("problem.request_came_from_another")).into_response()
    } else if app.core.db.is_overloaded() || (is_read && app.core.pages.is_overloaded()) {
        PageError::Overloaded(app.accounts.limits.retry_wait()).into_response()
    } else {
        next.run(request).await
    };
    let mut answer = dress_answer(is_read, answer);
    protect_answer(&app, &mut answer);
    answer
}

/// Renders an error page for an answer that carries a problem. A driver without a session is redirected to the sign-in.
fn dress_answer(is_read: bool, mut answer: Response) -> Response {
    match answer.extensions_mut().remove::<PageProblem>() {
        Some(problem) if problem.sign_in.is_some() => Redirect::to(SIGN_IN_PATH).into_response(),
        Some(problem) => page::dress_problem(BASE, problem, (false, is_read), None, answer),
        None => answer,
    }
}
