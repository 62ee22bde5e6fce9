//! Sign-in with a one-time code, sign-out, and the switch between languages.
//!
//! The code of a link is after '#', which browsers send to no server: the script writes it into the form. Only the
//! button uses it up, so the preview of a link in a chat does not.

use accounts::{driver_links, driver_sessions};
use api::client::ClientAddress;
use app::App;
use askama::Template;
use axum::{
    extract::{Extension, Form, State, rejection::FormRejection},
    http::{HeaderMap, StatusCode, header::SET_COOKIE},
    response::{Html, IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use super::{BASE, SIGN_IN_PATH};
use crate::{
    assets,
    catalogue::{Words, tr},
    cookie::{CookieKind, Transport},
    form::read_form,
    page::Shell,
    page_error::PageError,
    pages::language::{LanguageForm, store_choice},
};

#[derive(Template)]
#[template(path = "driver_sign_in.html")]
struct SignInPage {
    shell: Shell,
    style: &'static str,
    script: &'static str,
    problem: Option<Words>,
    /// Whether the request came over plain http from another machine.
    is_exposed: bool,
}

fn sign_in_page(transport: Transport, status: StatusCode, problem: Option<Words>) -> Result<Response, PageError> {
    let page = SignInPage {
        shell: Shell::without_person(BASE, tr("common.sign_in")),
        style: assets::driver_style_name(),
        script: assets::driver_script_name(),
        problem,
        is_exposed: transport == Transport::Exposed,
    };
    let body = page.render().map_err(|error| PageError::Broken(error.to_string()))?;
    Ok((status, Html(body)).into_response())
}

pub(super) async fn show_page(Extension(transport): Extension<Transport>) -> Result<Response, PageError> {
    sign_in_page(transport, StatusCode::OK, None)
}

/// Has no `Debug`, because the code is a secret.
#[derive(Deserialize)]
pub(super) struct CodeForm {
    code: String,
}

/// Exchanges a code for a session. Wrong codes count together with wrong keys, with a limit per minute and address.
pub(super) async fn sign_in(
    State(app): State<App>,
    Extension(transport): Extension<Transport>,
    Extension(address): Extension<ClientAddress>,
    form: Result<Form<CodeForm>, FormRejection>,
) -> Result<Response, PageError> {
    if transport == Transport::Exposed {
        return Err(PageError::Forbidden(tr("driver_page.sign_in_over_https")));
    }
    let CodeForm { code } = read_form(form)?;
    let Some(token) = driver_links::use_code(&app.core.db, &code, address.0).await? else {
        app.accounts.limits.count_failure(address.network()).map_err(PageError::TooManyFailures)?;
        return sign_in_page(transport, StatusCode::UNAUTHORIZED, Some(tr("driver_page.code_not_valid")));
    };
    Ok(redirect_with_cookie(transport, BASE, &token))
}

/// Ends the session. Does nothing without a session.
pub(super) async fn sign_out(
    State(app): State<App>,
    Extension(transport): Extension<Transport>,
    headers: HeaderMap,
) -> Result<Response, PageError> {
    if let Some(token) = transport.read_cookie(CookieKind::Driver, &headers) {
        driver_sessions::end_session(&app.core.db, &token).await?;
    }
    Ok(redirect_with_cookie(transport, SIGN_IN_PATH, ""))
}

/// Redirects and sets the cookie of the session; an empty token deletes it.
fn redirect_with_cookie(transport: Transport, path: &str, token: &str) -> Response {
    let mut answer = Redirect::to(path).into_response();
    if let Some(cookie) = transport.write_cookie(CookieKind::Driver, BASE, token) {
        answer.headers_mut().insert(SET_COOKIE, cookie);
    }
    answer
}

/// Stores the language in a cookie and redirects to the page with the switch.
pub(super) async fn choose_language(
    Extension(transport): Extension<Transport>,
    headers: HeaderMap,
    form: Result<Form<LanguageForm>, FormRejection>,
) -> Result<Response, PageError> {
    store_choice(BASE, transport, &headers, read_form(form)?)
}
