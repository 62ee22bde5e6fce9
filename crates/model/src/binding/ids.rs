//! Ids of servers, accounts and transactions.

use std::{fmt, str::FromStr};

use jobs::BindingId;
use serde::{Deserialize, Serialize};

/// Error for an invalid id of a server, account or transaction.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a valid {what} id: expected {expected}")]
pub struct InvalidProviderId {
    what: &'static str,
    text: String,
    expected: &'static str,
}

impl InvalidProviderId {
    fn new(what: &'static str, text: &str, expected: &'static str) -> Self {
        Self { what, text: text.chars().take(80).collect(), expected }
    }
}

fn is_plain_id(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
}

/// Defines an id type for texts that match `[A-Za-z0-9_.-]{1,64}`.
macro_rules! provider_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, sqlx::Type)]
        #[serde(try_from = "String", into = "String")]
        #[sqlx(transparent)]
        pub struct $name(String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidProviderId;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let expected = "1 to 64 letters, digits, '_', '-' or '.'";
                if is_plain_id(text) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(InvalidProviderId::new($what, text, expected))
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidProviderId;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

provider_id! {
    /// Id of a provider's server, which accepts a few calls at the same time.
    ServerId, "server"
}
provider_id! {
    /// Id of an account at a provider.
    AccountId, "account"
}

/// Id of a transaction: `{binding}.{cycle}`. It stays the same when the start is repeated. Neither part contains a '.'.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, sqlx::Type)]
#[serde(try_from = "String", into = "String")]
#[sqlx(transparent)]
pub struct TrxId(String);

impl TrxId {
    pub fn new(binding: &BindingId, cycle: i64) -> Self {
        Self(format!("{binding}.{cycle}"))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the binding and the cycle of the id.
    pub fn parts(&self) -> Option<(BindingId, i64)> {
        let (binding, cycle) = self.0.split_once('.')?;
        let number: i64 = cycle.parse().ok()?;
        (number > 0 && number.to_string() == cycle).then_some((binding.parse().ok()?, number))
    }
}

impl FromStr for TrxId {
    type Err = InvalidProviderId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let id = Self(text.to_owned());
        match id.parts() {
            Some(_) => Ok(id),
            None => Err(InvalidProviderId::new("transaction", text, "a binding id, '.' and the number of a cycle")),
        }
    }
}

impl TryFrom<String> for TrxId {
    type Error = InvalidProviderId;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<TrxId> for String {
    fn from(id: TrxId) -> Self {
        id.0
    }
}

impl fmt::Display for TrxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_names_its_binding_and_cycle() {
        let binding: BindingId = "acct-7_b".parse().unwrap();
        let id = TrxId::new(&binding, 42);
        assert_eq!(id.as_str(), "acct-7_b.42");
        assert_eq!(id.parts(), Some((binding, 42)));
        assert_eq!("acct-7_b.42".parse::<TrxId>().unwrap(), id);
        for bad in ["", "B", "B.", ".1", "B.0", "B.-1", "B.01", "B.1.2", "B:1", "b c.1"] {
            assert!(bad.parse::<TrxId>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn url_unsafe_ids_are_refused() {
        assert!("srv-1.eu_west".parse::<ServerId>().is_ok());
        for bad in ["", "a b", "a:b", "a/b", "ä", "a\n", &"x".repeat(65)] {
            assert!(bad.parse::<ServerId>().is_err() && bad.parse::<AccountId>().is_err(), "{bad:?}");
        }
        let error = "a/b".parse::<AccountId>().unwrap_err().to_string();
        assert_eq!(error, "'a/b' is not a valid account id: expected 1 to 64 letters, digits, '_', '-' or '.'");
    }
}
