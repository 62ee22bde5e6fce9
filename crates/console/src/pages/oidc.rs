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
    cookie::{CookieKind, Transport},
    form::read_query,
    language::{both, say},
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
    accounts.oidc.as_ref().ok_or(PageError::NotFound(both(
        "This installation names no provider in console.oidc.",
        "Instalasi ini tidak menyebut penyedia di console.oidc.",
    )))
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
        SignInError::NotBegun => (
            StatusCode::BAD_REQUEST,
            String::from(both(
                "This sign-in was not begun in this browser, or longer than ten minutes ago. Begin it again.",
                "Upaya masuk ini tidak dimulai di peramban ini, atau sudah lebih dari sepuluh menit. Mulailah lagi.",
            )),
        ),
        SignInError::Declined(code) => (
            StatusCode::FORBIDDEN,
            say!(
                "{host} did not let you in: {code}. Begin again, or ask those who run {host}.",
                "{host} tidak mengizinkan Anda masuk: {code}. Mulailah lagi, atau tanyakan kepada pengelola {host}."
            ),
        ),
        SignInError::Away(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            say!(
                "{host} cannot be asked right now. Try again in a moment, or sign in with a key.",
                "{host} sedang tidak dapat ditanya. Coba lagi sebentar, atau masuk dengan kunci."
            ),
        ),
        SignInError::Refused(_) => (
            StatusCode::UNAUTHORIZED,
            say!(
                "{host} did not confirm this sign-in: it may have been used before. Begin it again. If that does not \
                 help, the log of `serve` has the cause.",
                "{host} tidak membenarkan upaya masuk ini: mungkin sudah pernah dipakai. Mulailah lagi. Jika tidak \
                 membantu, sebabnya ada di log `serve`."
            ),
        ),
        SignInError::Untrusted(_) => (
            StatusCode::UNAUTHORIZED,
            say!(
                "What {host} says of you could not be verified. The log of `serve` has the cause.",
                "Yang dikatakan {host} tentang Anda tidak dapat diperiksa. Sebabnya ada di log `serve`."
            ),
        ),
        SignInError::NoName(claim) => (
            StatusCode::FORBIDDEN,
            say!(
                "{host} does not say who you are: it gives no {claim} of yours, or has not verified it. Ask those who \
                 run {host}.",
                "{host} tidak mengatakan siapa Anda: ia tidak memberi {claim} Anda, atau belum memeriksanya. Tanyakan \
                 kepada pengelola {host}."
            ),
        ),
        SignInError::NoRole(claim) => (
            StatusCode::FORBIDDEN,
            say!(
                "{host} knows you, but you have no role here. Ask for one of the {claim} that console.oidc.roles \
                 names.",
                "{host} mengenal Anda, tetapi Anda tidak punya peran di sini. Mintalah salah satu {claim} yang disebut \
                 console.oidc.roles."
            ),
        ),
    };
    tracing::warn!(%error, provider = host, "A sign-in by OpenID Connect failed.");
    login_page(app, transport, next, Some(problem)).respond(status)
}
