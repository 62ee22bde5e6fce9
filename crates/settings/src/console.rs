//! `[console]`: the web console for staff.

use garde::Validate;
use serde::{Deserialize, Serialize};

use super::{OidcConfig, links::ConsoleLinks};
use foundation::config::address::be_bind_or_empty;

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct ConsoleConfig {
    pub enabled: bool,
    /// Path without a trailing slash.
    #[garde(custom(be_page_path))]
    pub path: String,
    /// Host and port of a separate listener; empty to use the listener of the API.
    #[garde(custom(be_bind_or_empty))]
    pub bind: String,
    /// `None`: staff can sign in only with keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oidc: Option<OidcConfig>,
    #[serde(default, skip_serializing_if = "ConsoleLinks::is_empty")]
    #[garde(dive)]
    pub links: ConsoleLinks,
}

/// Checks the path: segments of plain characters, outside the other paths of `serve`.
fn be_page_path(path: &str, (): &()) -> garde::Result {
    let is_letter = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    let is_segment = |segment: &str| !segment.is_empty() && segment.bytes().all(is_letter);
    let taken = ["api", "dev", "docs", "driver", "healthz", "metrics", "readyz", "track"];
    let fits = path.strip_prefix('/').is_some_and(|rest| {
        let mut segments = rest.split('/');
        segments.clone().all(is_segment) && !segments.next().is_some_and(|first| taken.contains(&first))
    });
    if fits {
        return Ok(());
    }
    let problem = "must be a path such as /console or /ops/console: letters, digits, '-' or '_' between slashes, and not below another path of `serve`, such as /api or /driver";
    Err(garde::Error::new(problem))
}
