//! Who changes something: a role, a name and, for callers of the API, the key.
//! Design: docs/design/staff-and-roles.md.
//!
//! Tables keep an actor as one text, `role:name`, and the id of the key beside it. This file alone writes and reads that
//! text. What an actor may do follows from the role, never from the text.

use std::{borrow::Cow, fmt};

use uuid::Uuid;

use crate::ids::{DriverId, PartnerName};

/// The part an actor plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActorRole {
    Producer,
    Driver,
    /// A person who only reads. No change has this actor.
    Viewer,
    Dispatcher,
    Support,
    Operator,
    Admin,
    /// A partner, by a callback or an answer.
    Partner,
    /// A person at the command line. The name is what the shell says: no proof of identity.
    Cli,
    /// A worker, by a timer.
    System,
    Reconciler,
    /// A name of another form, such as a producer gives that creates orders in SQL.
    Other,
}

impl ActorRole {
    const ALL: [(Self, &'static str); 11] = [
        (Self::Producer, "producer"),
        (Self::Driver, "driver"),
        (Self::Viewer, "viewer"),
        (Self::Dispatcher, "dispatcher"),
        (Self::Support, "support"),
        (Self::Operator, "operator"),
        (Self::Admin, "admin"),
        (Self::Partner, "partner"),
        (Self::Cli, "cli"),
        (Self::System, "system"),
        (Self::Reconciler, "reconciler"),
    ];

    /// The first word of the stored text; empty for [`Other`](Self::Other).
    fn stored_word(self) -> &'static str {
        Self::ALL.iter().find(|(role, _)| *role == self).map_or("", |(_, word)| word)
    }

    /// The part without the person: staff are one.
    pub fn role_group(self) -> &'static str {
        match self {
            role if role.is_staff() => "staff",
            Self::Other => "other",
            role => role.stored_word(),
        }
    }

    /// Returns whether the actor is a person of the company who may change something.
    pub fn is_staff(self) -> bool {
        matches!(self, Self::Dispatcher | Self::Support | Self::Operator | Self::Admin | Self::Cli)
    }
}

/// Who changes something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    pub role: ActorRole,
    /// Empty for roles that have no names.
    pub name: Cow<'static, str>,
    /// The API key the request came with.
    pub key: Option<Uuid>,
}

impl Actor {
    /// A worker, by a timer.
    pub const SYSTEM: Self = Self::with_fixed_name(ActorRole::System, "");
    pub const RECONCILER: Self = Self::with_fixed_name(ActorRole::Reconciler, "");

    /// An actor of a fixed name, without a key.
    pub const fn with_fixed_name(role: ActorRole, name: &'static str) -> Self {
        Self { role, name: Cow::Borrowed(name), key: None }
    }

    pub fn new(role: ActorRole, name: impl Into<String>, key: Option<Uuid>) -> Self {
        Self { role, name: Cow::Owned(name.into()), key }
    }

    /// A driver whose request came without a key, such as by phone.
    pub fn for_driver(id: &DriverId) -> Self {
        Self::new(ActorRole::Driver, id.as_str(), None)
    }

    pub fn for_partner(name: &PartnerName) -> Self {
        Self::new(ActorRole::Partner, name.as_str(), None)
    }

    /// Returns whether the actor is a person of the company.
    pub fn is_staff(&self) -> bool {
        self.role.is_staff()
    }

    /// The producer's name, if the actor is one.
    pub fn producer_name(&self) -> Option<&str> {
        (self.role == ActorRole::Producer).then_some(&*self.name)
    }

    /// Reads what [`Display`](fmt::Display) has written.
    pub fn parse(text: &str) -> Self {
        let (word, name) = text.split_once(':').unwrap_or((text, ""));
        let known = ActorRole::ALL.iter().find(|(_, w)| *w == word).map(|(role, _)| *role);
        let actor = known.map(|role| Self::new(role, name, None));
        actor.filter(|a| a.to_string() == text).unwrap_or_else(|| Self::new(ActorRole::Other, text, None))
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.role, &*self.name) {
            (ActorRole::Other, name) => f.write_str(name),
            (role, "") => f.write_str(role.stored_word()),
            (role, name) => write!(f, "{}:{name}", role.stored_word()),
        }
    }
}

impl From<&Actor> for Actor {
    fn from(actor: &Actor) -> Self {
        actor.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read_back() {
        for (role, word) in ActorRole::ALL {
            for name in ["", "anna", "a:b", "shop 2"] {
                let actor = Actor::new(role, name, None);
                assert_eq!(Actor::parse(&actor.to_string()), actor, "{word}");
            }
        }
        for text in ["sql", "dispatchq", "nightly:import", "operator", ":x", ""] {
            assert_eq!(Actor::parse(text).to_string(), text);
        }
    }

    #[test]
    fn a_name_gives_no_rights() {
        assert!(Actor::parse("operator:anna").is_staff());
        for text in ["producer:operator:anna", "driver:admin", "Operator:anna", "system", "sql", "x operator:anna"] {
            assert!(!Actor::parse(text).is_staff(), "{text}");
        }
    }
}
