//! Sign-in and sign-out.

use api::client::ClientAddress;
use askama::Template;
use axum::{
    extract::{
        Extension, Form, Query, State,
        rejection::{FormRejection, QueryRejection},
    },
    http::{HeaderMap, StatusCode, header::SET_COOKIE},
    response::{Html, IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use crate::{
    assets,
    catalogue::tr,
    cookie::{CookieKind, Transport},
    form::{read_form, write_query},
    page::{Shell, safe_path},
    page_error::PageError,
};
use accounts::sessions;
use app::App;

/// Error for a sign-in over plain http from another machine.
pub(super) const EXPOSED: PageError = PageError::Forbidden(tr("sign_in.sign_over_https_over"));

#[derive(Template)]
#[template(path = "login.html")]
pub(super) struct LoginPage {
    shell: Shell,
    next: String,
    problem: Option<String>,
    provider: Option<ProviderLink>,
    /// Whether the request came over plain http from another machine.
    is_exposed: bool,
    /// Name of the script that reads the key of a sign-in link.
    script: &'static str,
}

/// Link to the sign-in at a provider.
struct ProviderLink {
    host: String,
    address: String,
}

impl LoginPage {
    pub(super) fn respond(self, status: StatusCode) -> Result<Response, PageError> {
        let body = self.render().map_err(|error| PageError::Broken(error.to_string()))?;
        Ok((status, Html(body)).into_response())
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct LoginQuery {
    #[serde(default)]
    pub(super) next: String,
}

pub(super) fn login_page(app: &App, transport: Transport, next: &str, problem: Option<String>) -> LoginPage {
    let base = app.config.console.path.as_str();
    let next = inner_path(base, next);
    let provider = app.accounts.oidc.as_ref().map(|provider| ProviderLink {
        host: provider.host().to_owned(),
        address: format!("{base}/oidc/start{}", write_query(&[("next", next)])),
    });
    LoginPage {
        shell: Shell::without_person(base, tr("common.sign_in")),
        next: next.to_owned(),
        problem,
        provider,
        is_exposed: transport == Transport::Exposed,
        script: assets::sign_in_name(),
    }
}

/// Returns the address if it is one of the console's; otherwise the first page.
pub(super) fn inner_path<'a>(base: &'a str, next: &'a str) -> &'a str {
    let is_inner = next.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']));
    safe_path(Some(next).filter(|_| is_inner), base)
}

pub(crate) async fn show_page(
    State(app): State<App>,
    Extension(transport): Extension<Transport>,
    query: Result<Query<LoginQuery>, QueryRejection>,
) -> Result<Response, PageError> {
    // An unreadable query is treated as a missing one.
    let next = query.map_or_else(|_| String::new(), |Query(query)| query.next);
    login_page(&app, transport, &next, None).respond(StatusCode::OK)
}

pub(crate) async fn to_first_page(State(app): State<App>) -> Redirect {
    Redirect::to(&app.config.console.path)
}

#[derive(Deserialize)]
pub(crate) struct LoginForm {
    key: String,
    #[serde(default)]
    next: String,
}

/// Exchanges a key for a session. Wrong keys count together with those of the API, with a limit per minute and address.
pub(crate) async fn sign_in(
    State(app): State<App>,
    Extension(transport): Extension<Transport>,
    Extension(address): Extension<ClientAddress>,
    form: Result<Form<LoginForm>, FormRejection>,
) -> Result<Response, PageError> {
    if transport == Transport::Exposed {
        return Err(EXPOSED);
    }
    let LoginForm { key, next } = read_form(form)?;
    let owner = app.accounts.keys.find_owner(&app.core.db, key.trim()).await?;
    let Some(owner) = owner else {
        app.accounts.limits.count_failure(address.network()).map_err(PageError::TooManyFailures)?;
        let problem = tr("sign_in.key_not_exist_expired");
        return login_page(&app, transport, &next, Some(problem.into())).respond(StatusCode::UNAUTHORIZED);
    };
    if !owner.role.is_staff() {
        let problem = tr("sign_in.key_belongs_producer_driver");
        return login_page(&app, transport, &next, Some(problem.into())).respond(StatusCode::FORBIDDEN);
    }
    let token = sessions::open_session(&app.core.db, &owner, address.0).await?;
    app.accounts.key_use.record_use(owner.id);
    let base = app.config.console.path.as_str();
    let mut answer = Redirect::to(inner_path(base, &next)).into_response();
    if let Some(cookie) = transport.write_cookie(CookieKind::Session, base, &token) {
        answer.headers_mut().insert(SET_COOKIE, cookie);
    }
    Ok(answer)
}

/// Ends the session. Does nothing without a session.
pub(crate) async fn sign_out(
    State(app): State<App>,
    Extension(transport): Extension<Transport>,
    headers: HeaderMap,
) -> Result<Response, PageError> {
    if let Some(token) = transport.read_cookie(CookieKind::Session, &headers) {
        sessions::end_session(&app.core.db, &token).await?;
    }
    let base = app.config.console.path.as_str();
    let mut answer = Redirect::to(&format!("{base}/login")).into_response();
    if let Some(cookie) = transport.write_cookie(CookieKind::Session, base, "") {
        answer.headers_mut().insert(SET_COOKIE, cookie);
    }
    Ok(answer)
}
