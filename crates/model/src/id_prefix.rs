//! Prefix of the textual ids that an installation generates. A router in front of several installations finds the
//! installation of an order by it: docs/SCALING.md.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Maximum length in characters. A generated order id has 37 more, and an order id has at most 64.
const LONGEST: usize = 8;

/// Prefix of generated ids, such as `jkt`. If it is empty, generated ids have none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IdPrefix(String);

/// Error of a text that cannot be a prefix, worded to follow the name of the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must have 1 to {LONGEST} characters, each of a to z or 0 to 9, such as \"jkt\"; leave it empty for no prefix")]
pub struct InvalidIdPrefix;

impl IdPrefix {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the id with the prefix: `jkt-ORD-1`.
    pub fn prepend(&self, id: &str) -> String {
        if self.0.is_empty() { id.to_owned() } else { format!("{}-{id}", self.0) }
    }
}

impl FromStr for IdPrefix {
    type Err = InvalidIdPrefix;

    fn from_str(text: &str) -> Result<Self, InvalidIdPrefix> {
        let is_valid = text.len() <= LONGEST && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        if is_valid { Ok(Self(text.to_owned())) } else { Err(InvalidIdPrefix) }
    }
}

impl TryFrom<String> for IdPrefix {
    type Error = InvalidIdPrefix;

    fn try_from(text: String) -> Result<Self, InvalidIdPrefix> {
        text.parse()
    }
}

impl From<IdPrefix> for String {
    fn from(prefix: IdPrefix) -> Self {
        prefix.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_short_lowercase_prefixes_are_valid() {
        for good in ["", "j", "jkt", "cell01", "abcdefgh"] {
            assert_eq!(good.parse().map(|prefix: IdPrefix| prefix.0), Ok(good.to_owned()));
        }
        for bad in ["JKT", "jkt-1", "j_1", "jkt ", "abcdefghi", "é", "\n"] {
            assert_eq!(bad.parse::<IdPrefix>(), Err(InvalidIdPrefix), "{bad}");
        }
    }

    #[test]
    fn empty_prefix_leaves_the_id_unchanged() {
        assert_eq!(IdPrefix::default().prepend("ORD-1"), "ORD-1");
        assert_eq!(IdPrefix("jkt".to_owned()).prepend("ORD-1"), "jkt-ORD-1");
    }
}
