//! The pages that explain error codes: docs/ERRORS.md, and one page for each code, where `type` of an error leads.

use axum::{
    extract::{Path, rejection::PathRejection},
    http::{HeaderName, header::CONTENT_TYPE},
};

use super::{
    ApiError,
    codes::{CodeEntry, list_entries, statuses_of},
};
use crate::openapi::PageErrors;

fn write_entry((code, title, text): &CodeEntry) -> String {
    let statuses: Vec<_> = statuses_of(code).map(|status| status.as_u16().to_string()).collect();
    format!("## {code}\n\n**{title}** (HTTP {}). {text}\n", statuses.join(", "))
}

/// docs/ERRORS.md.
pub fn errors_page() -> String {
    let mut entries: Vec<_> = list_entries().collect();
    entries.sort_unstable();
    let mut page = "# Errors\n\nMade of crates/api/src/error/codes by `UPDATE_PAGES=1 cargo nextest run --locked the_page_of_errors`; \
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
    let entry = list_entries().find(|(known, ..)| *known == code).ok_or(ApiError::NoSuchErrorCode)?;
    Ok(([(CONTENT_TYPE, "text/markdown; charset=utf-8")], write_entry(entry)))
}
