//! Id of a binding, and its place in job ids.

use std::{fmt, str::FromStr};

use job_contract::{DecodeError, JobId};
use serde::{Deserialize, Serialize};

/// `[A-Za-z0-9_-]{1,64}`: safe inside a job id, a Redis key, a transaction id and a URL.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BindingId(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no binding id: expected 1 to 64 letters, digits, '_' or '-'")]
pub struct InvalidBindingId(String);

impl BindingId {
    const MAX_BYTES: usize = 64;

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Builds `kind:{binding}:{cycle}`.
    pub(crate) fn numbered_job_id(&self, kind: &str, cycle: u64) -> JobId {
        JobId::parse(format!("{kind}:{self}:{cycle}")).expect("a binding id fits into a job id")
    }

    /// Parses `kind:{binding}:{cycle}`.
    pub(crate) fn from_numbered_job_id(id: &JobId) -> Result<(Self, u64), DecodeError> {
        let (binding, cycle) = id.key().rsplit_once(':').ok_or_else(|| DecodeError::new(id, "no cycle"))?;
        let cycle = cycle.parse().map_err(|_| DecodeError::new(id, format!("'{cycle}' is no cycle")))?;
        Ok((binding.parse().map_err(|e| DecodeError::new(id, e))?, cycle))
    }
}

impl FromStr for BindingId {
    type Err = InvalidBindingId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fits = (1..=Self::MAX_BYTES).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        if fits { Ok(Self(text.to_owned())) } else { Err(InvalidBindingId(text.chars().take(80).collect())) }
    }
}

impl TryFrom<String> for BindingId {
    type Error = InvalidBindingId;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<BindingId> for String {
    fn from(id: BindingId) -> Self {
        id.0
    }
}

impl fmt::Display for BindingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_id_contains_binding_and_cycle() {
        let binding: BindingId = "acct_7-a".parse().unwrap();
        let id = binding.numbered_job_id("cycle", 12);
        assert_eq!(id.as_str(), "cycle:acct_7-a:12");
        assert_eq!(BindingId::from_numbered_job_id(&id).unwrap(), (binding, 12));
    }

    #[test]
    fn a_foreign_job_id_says_what_is_wrong() {
        let read = |text: &str| BindingId::from_numbered_job_id(&JobId::parse(text).unwrap()).unwrap_err().reason;
        assert_eq!(read("cycle:B:x"), "'x' is no cycle");
        assert_eq!(read("cycle:B"), "no cycle");
        assert_eq!(read("cycle:B:-1"), "'-1' is no cycle");
    }

    #[test]
    fn binding_id_has_only_safe_characters() {
        for bad in ["", "a b", "a:b", "a.b", "a/b", &"x".repeat(65)] {
            assert!(bad.parse::<BindingId>().is_err(), "{bad:?}");
        }
    }
}
