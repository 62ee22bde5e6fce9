//! Switch between languages.

use axum::{
    extract::{Extension, Form, State, rejection::FormRejection},
    http::{
        HeaderMap, Uri,
        header::{REFERER, SET_COOKIE},
        uri::PathAndQuery,
    },
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use super::sign_in::inner_path;
use crate::{catalogue::tr, cookie::Transport, form::read_form, language::Language, page_error::PageError};
use app::App;

#[derive(Debug, Deserialize)]
pub(crate) struct LanguageForm {
    #[serde(default)]
    language: String,
    /// Page with the switch, if its address is that of a refused form.
    back: Option<String>,
}

/// Stores the language in a cookie and redirects to the page with the switch. It needs no session, because the sign-in
/// page also has the switch.
pub(crate) async fn choose_language(
    State(app): State<App>,
    Extension(transport): Extension<Transport>,
    headers: HeaderMap,
    form: Result<Form<LanguageForm>, FormRejection>,
) -> Result<Response, PageError> {
    store_choice(&app.config.console.path, transport, &headers, read_form(form)?)
}

/// Stores the language for the pages under `base`, and redirects to the page with the switch.
pub(crate) fn store_choice(
    base: &str,
    transport: Transport,
    headers: &HeaderMap,
    LanguageForm { language, back }: LanguageForm,
) -> Result<Response, PageError> {
    let unknown = tr("language.pages_available_english_indonesian");
    let language = Language::parse(&language).ok_or_else(|| PageError::Invalid(unknown.into()))?;
    let sender: Option<Uri> = headers.get(REFERER).and_then(|page| page.to_str().ok()?.parse().ok());
    let sender = sender.as_ref().and_then(Uri::path_and_query).map(PathAndQuery::as_str);
    let path = back.as_deref().or(sender).unwrap_or(base);
    let mut answer = Redirect::to(inner_path(base, path)).into_response();
    if let Some(cookie) = language.write_cookie(base, transport) {
        answer.headers_mut().insert(SET_COOKIE, cookie);
    }
    Ok(answer)
}
