//! Validation of form fields and filters.

use std::fmt::Write as _;

use axum::extract::{
    Form, Query,
    rejection::{FormRejection, QueryRejection},
};
use chrono::{DateTime, Utc};
use model::{
    input::{self, GivenTime},
    json_words::plain_error,
};
use serde::de::DeserializeOwned;

use crate::{
    catalogue::{Words, fill},
    page_error::PageError,
};
use model::plain_text;

/// Maximum number of characters of a reason, a note or a filter.
const MAX_TEXT: usize = input::REASON.most;

/// Returns the values of a form, or the error page for it.
pub(crate) fn read_form<T>(form: Result<Form<T>, FormRejection>) -> Result<T, PageError> {
    form.map(|Form(value)| value).map_err(|rejection| unreadable(&rejection.body_text()))
}

/// Returns the filter of an address, or the error page for it.
pub(crate) fn read_query<T: DeserializeOwned>(query: Result<Query<T>, QueryRejection>) -> Result<T, PageError> {
    query.map(|Query(value)| value).map_err(|rejection| unreadable(&rejection.body_text()))
}

/// Returns the error page for an unreadable form or filter. `error` is the message of the parser.
fn unreadable(error: &str) -> PageError {
    let plain = plain_error(error);
    PageError::Invalid(fill!("form.form_cannot_read", plain))
}

/// Checks a required text. It must contain a visible character.
pub(crate) fn given_text(name: Words, text: &str) -> Result<String, PageError> {
    let text = optional_text(name, Some(text))?;
    text.filter(|text| !plain_text::is_blank(text)).ok_or_else(|| PageError::Invalid(fill!("form.field_empty", name)))
}

/// Checks an optional text. A blank text counts as missing.
pub(crate) fn optional_text(name: Words, text: Option<&str>) -> Result<Option<String>, PageError> {
    let Some(text) = text.map(str::trim).filter(|text| !text.is_empty()) else { return Ok(None) };
    if plain_text::find_problem(text, MAX_TEXT).is_some() {
        return Err(PageError::Invalid(fill!("form.field_plain_text_one", name, most = MAX_TEXT)));
    }
    Ok(Some(text.to_owned()))
}

/// Splits names at commas.
pub(crate) fn split_names(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty())
}

/// Parses a time in RFC 3339, or in the form that browsers send: UTC without seconds or zone.
pub(crate) fn parse_time(name: Words, text: &str) -> Result<Option<DateTime<Utc>>, PageError> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let forms = [text.to_owned(), format!("{text}Z"), format!("{text}:00Z")];
    match forms.iter().find_map(|form| form.parse::<GivenTime>().ok()) {
        Some(given) => Ok(Some(given.time())),
        None => Err(PageError::Invalid(fill!("form.not_time_write_time", name))),
    }
}

/// Escapes a value for the query of an address.
pub(crate) fn encode_component(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// Returns the query of an address, without pairs that have an empty value. It starts with `?` unless it is empty.
pub(crate) fn write_query(pairs: &[(&str, &str)]) -> String {
    let mut query = String::new();
    for (name, value) in pairs.iter().filter(|(_, value)| !value.is_empty()) {
        let lead = if query.is_empty() { '?' } else { '&' };
        let _ = write!(query, "{lead}{name}={}", encode_component(value));
    }
    query
}
