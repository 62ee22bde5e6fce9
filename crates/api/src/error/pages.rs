//! Pages that describe error codes: docs/ERRORS.md, and one page per code, to which `type` of an error links.

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

/// Returns the text of docs/ERRORS.md.
pub fn errors_page() -> String {
    let mut entries = codes::ALL.to_vec();
    entries.sort_unstable_by_key(|entry| entry.code);
    let mut page = "# Errors\n\nGenerated from crates/api/src/error/codes.rs by `UPDATE_PAGES=1 cargo nextest run --locked \
                    the_page_of_errors`; change them there.\n\n\
                    An error is `application/problem+json` (RFC 9457) with additional members. `error_code` is the code that \
                    programs match on. `message` and `detail` explain the error to people. `type` is the path of the entry below, \
                    served as `GET /errors/{code}`, and `title` is the title of this entry. `status` is the HTTP status. `instance` \
                    is the path of the request, and `request_id` its id in the logs. `errors` lists each part of the request that \
                    breaks a rule: `pointer` in the body, `parameter` of query or path, or `header`, and the rule in `detail`.\n\n\
                    429 and 503 have the header `Retry-After` with the seconds to wait. 401 has `WWW-Authenticate` with the \
                    required authentication. If an area takes no order, `status` is the word that the requirement prescribes, not \
                    the number.\n"
        .to_owned();
    for entry in entries {
        page.push('\n');
        page.push_str(&write_entry(entry));
    }
    page
}

/// Describes an error code and its remedy.
#[utoipa::path(get, path = "/errors/{code}", operation_id = "show_error_code", tag = "document", security(()),
    extensions(("x-audience" = json!("everyone"))),
    params(("code" = String, Path, description = "the `error_code` of an error", pattern = "^[A-Z_]{1,64}$",
            example = "ORDER_NOT_FOUND")),
    responses(
        (status = 200, description = "success", body = String, content_type = "text/markdown",
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
