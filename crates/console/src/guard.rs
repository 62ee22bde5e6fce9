//! What every answer of the console carries, and which requests are refused before a handler sees them.

use api::client::ClientAddress;
use axum::{
    extract::{Request, State},
    http::{
        HeaderMap, HeaderName, HeaderValue, StatusCode, Uri,
        header::{
            CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, ORIGIN, REFERRER_POLICY, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS,
            X_FRAME_OPTIONS,
        },
        uri::Authority,
    },
    middleware::Next,
    response::{IntoResponse, Response},
};
use dispatch::app::App;

use crate::{
    language::{LANGUAGE, Language, both},
    page::{self, PageError},
    session::Transport,
};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
const FETCH_SITE: &str = "sec-fetch-site";

/// Middleware, the outermost of the console.
pub(crate) async fn guard_request(State(app): State<App>, request: Request, next: Next) -> Response {
    let language = Language::of_request(request.headers());
    LANGUAGE.scope(language, answer_request(app, request, next)).await
}

async fn answer_request(app: App, mut request: Request, next: Next) -> Response {
    // Checked with the configuration.
    let proxies = app.config.http.trusted_networks().unwrap_or_default();
    let transport = Transport::of_request(&request, &proxies);
    let address = ClientAddress::of_request(&request);
    request.extensions_mut().insert(transport);
    request.extensions_mut().insert(address);
    let is_refresh = request.headers().contains_key("hx-request");
    let is_read = request.method().is_safe();
    let answer = if !is_read && !is_same_origin(request.headers()) {
        PageError::Forbidden(both("This request was made by another site.", "Permintaan ini dibuat oleh situs lain."))
            .into_response()
    } else if app.db.is_overloaded() || (is_read && app.pages.is_overloaded()) {
        PageError::Overloaded(app.limits.retry_wait()).into_response()
    } else {
        next.run(request).await
    };
    let mut answer = page::dress_error(&app, is_refresh, is_read, answer);
    let headers = answer.headers_mut();
    let fixed: [(HeaderName, &'static str); 5] = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        // Not `no-referrer`: browsers would name no origin with forms.
        (REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if answer.status() == StatusCode::SERVICE_UNAVAILABLE {
        let wait = app.limits.retry_wait().as_secs();
        answer.headers_mut().entry(RETRY_AFTER).or_insert(wait.into());
    }
    answer
}

/// Returns whether the browser says that a page of this origin made the request: `Sec-Fetch-Site`, or of older browsers `Origin`.
/// One that says neither is no browser with a session.
fn is_same_origin(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(site) = text(FETCH_SITE) {
        return site == "same-origin";
    }
    let origin = text(ORIGIN.as_str()).and_then(|origin| origin.parse::<Uri>().ok());
    let named = origin.as_ref().and_then(Uri::authority).map(Authority::as_str);
    named.is_some() && named == text(HOST.as_str())
}
