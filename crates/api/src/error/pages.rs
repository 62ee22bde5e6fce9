//! The pages that explain error codes: docs/ERRORS.md, and one page for each code, where `type` of an error leads.

use axum::{
    extract::{Path, rejection::PathRejection},
    http::{HeaderName, header::CONTENT_TYPE},
};

use super::{
    ApiError,
    codes::{self, ErrorCode},
};
use crate::openapi::PageErrors;

fn write_entry(entry: &ErrorCode) -> String {
    let ErrorCode { code, title, cure, .. } = entry;
    let mut statuses: Vec<_> = entry.statuses().iter().map(u16::to_string).collect();
    statuses.sort_unstable();
    format!("## {code}\n\n**{title}** (HTTP {}). {cure}\n", statuses.join(", "))
}

/// docs/ERRORS.md.
pub fn errors_page() -> String {
    let mut entries = codes::ALL.to_vec();
    entries.sort_unstable_by_key(|entry| entry.code);
    let mut page = "# Errors\n\nMade of crates/api/src/error/codes.rs by `UPDATE_PAGES=1 cargo nextest run --locked the_page_of_errors`; \
                    change them there.\n\n\
                    An error is `application/problem+json` (RFC 9457) with the members of ours beside: `error_code`, which \
                    programs match on, `message`, `type` (the path of the entry below, served as `GET /errors/{code}`), `title`, \
                    `status`, `detail`, `instance` (the path of the request) and `request_id` (the id of the request in the \
                    logs). `errors` names each part of the request that breaks a rule: `pointer` in the body, `parameter` of \
                    query or path, or `header`, and in `detail` the rule.\n\n\
                    429 and 503 say in `Retry-After` how many seconds to wait, 401 in `WWW-Authenticate` what is asked for. \
                    Where an area takes no order, `status` is the word of the requirement and not the number.\n"
        .to_owned();
    for entry in entries {
        page.push('\n');
        page.push_str(&write_entry(entry));
    }
    page
}

/// Says what an error code means, and what to do.
#[utoipa::path(get, path = "/errors/{code}", operation_id = "show_error_code", tag = "document", security(()),
    params(("code" = String, Path, description = "the `error_code` of an error", pattern = "^[A-Z_]{1,64}$",
            example = "ORDER_NOT_FOUND")),
    responses(
        (status = 200, description = "done", body = String, content_type = "text/markdown",
         example = "## ORDER_NOT_FOUND\n\n**No such order** (HTTP 404). ..."),
        PageErrors,
    ))]
pub(crate) async fn show_error_code(
    code: Result<Path<String>, PathRejection>,
) -> Result<([(HeaderName, &'static str); 1], String), ApiError> {
    let code = code.map_or_else(|_| String::new(), |Path(code)| code);
    let entry = codes::find(&code).ok_or(ApiError::NoSuchErrorCode)?;
    Ok(([(CONTENT_TYPE, "text/markdown; charset=utf-8")], write_entry(entry)))
}
