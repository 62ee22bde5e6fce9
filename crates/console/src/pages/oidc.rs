//! Sign-in at a provider of OpenID Connect.

use accounts::capability::Accounts;
use api::client::ClientAddress;
use axum::{
    extract::{Extension, Query, State, rejection::QueryRejection},
    http::{HeaderMap, StatusCode, header::SET_COOKIE},
    response::{IntoResponse, Redirect, Response},
};

use super::sign_in::{EXPOSED, LoginQuery, inner_path, login_page};
use crate::{
    catalogue::{fill, tr},
    cookie::{CookieKind, Transport},
    form::read_query,
    page_error::PageError,
};
use accounts::{
    oidc::{OidcProvider, SignInAnswer, SignInError},
    sessions::{self, SignedInPerson},
};
use app::App;

/// Path below the console's path to which the provider redirects the browser.
pub(super) const CALLBACK: &str = "/oidc/callback";

fn configured_provider(accounts: &Accounts) -> Result<&OidcProvider, PageError> {
    accounts.oidc.as_ref().ok_or(PageError::NotFound(tr("sign_in.no_identity_provider_configured")))
}

/// Redirects the browser to the provider.
pub(crate) async fn begin_sign_in(
    State(app): State<App>,
    Extension(transport): Extension<Transport>,
    headers: HeaderMap,
    query: Result<Query<LoginQuery>, QueryRejection>,
) -> Result<Response, PageError> {
    let provider = configured_provider(&app.accounts)?;
    let base = app.config.console.path.as_str();
    let callback = transport.own_address(&headers, &format!("{base}{CALLBACK}")).ok_or(EXPOSED)?;
    // An unreadable query is treated as a missing one.
    let next = query.map_or_else(|_| String::new(), |Query(query)| query.next);
    match provider.begin_sign_in(&callback, inner_path(base, &next)).await {
        Ok(begun) => {
            let mut answer = Redirect::to(&begun.address).into_response();
            if let Some(cookie) = transport.write_cookie(CookieKind::SignIn, base, &begun.sealed) {
                answer.headers_mut().insert(SET_COOKIE, cookie);
            }
            Ok(answer)
        }
        Err(error) => refuse(&app, provider, transport, &next, &error),
    }
}

/// Receives the browser from the provider, and opens a session for the person that the provider names. Each attempt
/// counts as a wrong key, because only the provider can tell whether its code is valid.
pub(crate) async fn finish_sign_in(
    State(app): State<App>,
    Extension(transport): Extension<Transport>,
    Extension(address): Extension<ClientAddress>,
    headers: HeaderMap,
    query: Result<Query<SignInAnswer>, QueryRejection>,
) -> Result<Response, PageError> {
    let provider = configured_provider(&app.accounts)?;
    if transport == Transport::Exposed {
        return Err(EXPOSED);
    }
    app.accounts.limits.count_failure(address.network()).map_err(PageError::TooManyFailures)?;
    let returned = read_query(query)?;
    let base = app.config.console.path.as_str();
    let sealed = transport.read_cookie(CookieKind::SignIn, &headers).unwrap_or_default();
    let mut answer = match provider.finish_sign_in(&sealed, &returned).await {
        Ok((person, next)) => {
            let signed_in = SignedInPerson { name: &person.name, role: person.role, subject: &person.subject };
            let (token, key) = sessions::open_personal_session(&app.core.db, signed_in, address.0).await?;
            app.accounts.key_use.record_use(key);
            tracing::info!(role = ?person.role, %key, "A person signed in by OpenID Connect.");
            let mut answer = Redirect::to(inner_path(base, &next)).into_response();
            if let Some(cookie) = transport.write_cookie(CookieKind::Session, base, &token) {
                answer.headers_mut().insert(SET_COOKIE, cookie);
            }
            answer
        }
        Err(error) => refuse(&app, provider, transport, "", &error)?,
    };
    // The cookie is valid only once.
    if let Some(cookie) = transport.write_cookie(CookieKind::SignIn, base, "") {
        answer.headers_mut().append(SET_COOKIE, cookie);
    }
    Ok(answer)
}

/// Returns the sign-in page with the problem and its remedy. The log has the cause.
fn refuse(
    app: &App,
    provider: &OidcProvider,
    transport: Transport,
    next: &str,
    error: &SignInError,
) -> Result<Response, PageError> {
    let host = provider.host();
    let (status, problem) = match error {
        SignInError::NotBegun => (StatusCode::BAD_REQUEST, String::from(tr("sign_in.sign_not_started_browser"))),
        SignInError::Declined(code) => (StatusCode::FORBIDDEN, fill!("sign_in.refused_sign_start_again", host, code)),
        SignInError::Away(_) => (StatusCode::SERVICE_UNAVAILABLE, fill!("sign_in.cannot_reached_try_again", host)),
        SignInError::Refused(_) => (StatusCode::UNAUTHORIZED, fill!("sign_in.did_not_confirm_sign", host)),
        SignInError::Untrusted(_) => (StatusCode::UNAUTHORIZED, fill!("sign_in.identity_from_could_not", host)),
        SignInError::NoName(claim) => (StatusCode::FORBIDDEN, fill!("sign_in.did_not_send_your", host, claim)),
        SignInError::NoRole(claim) => (StatusCode::FORBIDDEN, fill!("sign_in.knows_you_but_you", host, claim)),
    };
    tracing::warn!(%error, provider = host, "A sign-in by OpenID Connect failed.");
    login_page(app, transport, next, Some(problem)).respond(status)
}
