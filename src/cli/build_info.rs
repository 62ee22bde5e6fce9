//! Version, commit and schema of this build, for `--version` and the metric `dispatchq_build_info`.

use std::sync::LazyLock;

use foundation::db;
use metrics::gauge;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// First digits of the commit, or [`UNKNOWN`]. scripts/release sets the variable. Other builds do not ask git for the
/// commit, because each commit would then compile this crate again.
const COMMIT: &str = shorten_commit(option_env!("DISPATCHQ_BUILD_COMMIT"));
const COMMIT_DIGITS: usize = 12;
const UNKNOWN: &str = "unknown";

/// Returns the text that `--version` prints after the name of the program.
pub(super) fn version_text() -> &'static str {
    static TEXT: LazyLock<String> =
        LazyLock::new(|| format!("{VERSION} (commit {COMMIT}, schema {})", db::newest_migration()));
    &TEXT
}

/// Exports `dispatchq_build_info`. Requires an installed recorder.
pub(super) fn export_build_info() {
    let schema = db::newest_migration().to_string();
    gauge!("dispatchq_build_info", "version" => VERSION, "commit" => COMMIT, "schema" => schema).set(1.0);
}

const fn shorten_commit(commit: Option<&'static str>) -> &'static str {
    let Some(commit) = commit else { return UNKNOWN };
    let bytes = commit.as_bytes();
    if bytes.len() < COMMIT_DIGITS {
        return UNKNOWN;
    }
    let mut at = 0;
    while at < COMMIT_DIGITS {
        if !bytes[at].is_ascii_hexdigit() {
            return UNKNOWN;
        }
        at += 1;
    }
    commit.split_at(COMMIT_DIGITS).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commit_has_twelve_digits_or_is_unknown() {
        assert_eq!(shorten_commit(Some("aaa8938e13f0c8b7d6e5")), "aaa8938e13f0");
        for other in [None, Some(""), Some("aaa8938e"), Some("not a commit"), Some("aaa8938e13fé")] {
            assert_eq!(shorten_commit(other), "unknown", "{other:?}");
        }
    }
}
