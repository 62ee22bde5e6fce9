//! Id of an order, and its place in job ids.

use std::{fmt, str::FromStr};

use job_contract::{DecodeError, JobId};
use serde::{Deserialize, Serialize};

/// `[A-Za-z0-9_-]{1,64}`: safe inside a job id, a Redis key and a URL.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OrderId(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no order id: expected 1 to 64 letters, digits, '_' or '-'")]
pub struct InvalidOrderId(String);

impl OrderId {
    const MAX_BYTES: usize = 64;

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Builds `kind:{order}`.
    pub(crate) fn job_id(&self, kind: &str) -> JobId {
        JobId::parse(format!("{kind}:{self}")).expect("an order id fits into a job id")
    }

    /// Builds `kind:{order}:{number}`.
    pub(crate) fn numbered_job_id(&self, kind: &str, number: impl fmt::Display) -> JobId {
        JobId::parse(format!("{kind}:{self}:{number}")).expect("an order id fits into a job id")
    }

    /// Parses `kind:{order}`.
    pub(crate) fn from_job_id(id: &JobId) -> Result<Self, DecodeError> {
        id.key().parse().map_err(|e| DecodeError::new(id, e))
    }

    /// Parses `kind:{order}:{number}`.
    pub(crate) fn from_numbered_job_id<N: FromStr>(id: &JobId) -> Result<(Self, N), DecodeError> {
        let (order, number) = id.key().rsplit_once(':').ok_or_else(|| DecodeError::new(id, "no number"))?;
        let number = number.parse().map_err(|_| DecodeError::new(id, format!("'{number}' is no number")))?;
        Ok((order.parse().map_err(|e| DecodeError::new(id, e))?, number))
    }
}

impl FromStr for OrderId {
    type Err = InvalidOrderId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fits = (1..=Self::MAX_BYTES).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        if fits { Ok(Self(text.to_owned())) } else { Err(InvalidOrderId(text.chars().take(80).collect())) }
    }
}

impl TryFrom<String> for OrderId {
    type Error = InvalidOrderId;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<OrderId> for String {
    fn from(id: OrderId) -> Self {
        id.0
    }
}

impl fmt::Display for OrderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_id_has_only_safe_characters() {
        assert!("CCT-20260109_1".parse::<OrderId>().is_ok());
        for bad in ["", "a b", "a:b", "ä", "a/b", &"x".repeat(65)] {
            assert!(bad.parse::<OrderId>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn job_id_contains_order_and_number() {
        let order: OrderId = "ORD-1".parse().unwrap();
        let id = order.numbered_job_id("timeout", 3);
        assert_eq!(id.as_str(), "timeout:ORD-1:3");
        assert_eq!(OrderId::from_numbered_job_id::<u32>(&id).unwrap(), (order, 3));
    }

    #[test]
    fn a_foreign_job_id_says_what_is_wrong() {
        let read = |text: &str| OrderId::from_numbered_job_id::<u32>(&JobId::parse(text).unwrap()).unwrap_err().reason;
        assert_eq!(read("timeout:ORD-1:x"), "'x' is no number");
        assert_eq!(read("timeout:ORD-1"), "no number");
    }
}
