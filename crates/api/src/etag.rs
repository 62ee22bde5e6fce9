//! Versions of resources: `ETag` of an answer, `If-Match` of a request.

use axum::http::{
    HeaderMap, HeaderName,
    header::{ETAG, IF_MATCH},
};

use super::error::ApiError;

/// Returns the header for a resource with this version.
pub(crate) fn etag_header(version: i64) -> [(HeaderName, String); 1] {
    [(ETAG, format!("\"{version}\""))]
}

/// Returns the version that the request requires in `If-Match`.
pub(crate) fn expected_version(headers: &HeaderMap) -> Result<Option<i64>, ApiError> {
    let mut values = headers.get_all(IF_MATCH).iter();
    let version = match (values.next(), values.next()) {
        (None, _) => return Ok(None),
        (Some(one), None) => one.to_str().ok().and_then(read_version),
        (Some(_), Some(_)) => None,
    };
    let rule = "If-Match must be one version, such as \"3\"";
    version.map(Some).ok_or_else(|| ApiError::invalid_header("If-Match", rule))
}

/// Parses a version in the form of an `ETag`, with or without quotes.
fn read_version(text: &str) -> Option<i64> {
    let text = text.trim();
    let digits = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text);
    let is_number = (1..=18).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    if is_number { digits.parse().ok() } else { None }
}
