//! Author of a change: a role, a name and, for API callers, the key. Design: docs/design/staff-and-roles.md.
//!
//! Tables store an actor as one text, `role:name`, with the key id in a separate column. Only this file writes and
//! parses that text. Permissions follow from the role, never from the text.

use std::{borrow::Cow, fmt};

use uuid::Uuid;

use crate::ids::{DriverId, PartnerName};

/// Role of an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActorRole {
    Producer,
    Driver,
    /// A person with read access only. No change has this actor.
    Viewer,
    Dispatcher,
    Support,
    Operator,
    Admin,
    /// A partner, acting through a callback or an answer.
    Partner,
    /// A person at the command line. The name comes from the shell and proves no identity.
    Cli,
    /// A worker that runs a timer.
    System,
    Reconciler,
    /// A name in another form, such as that of a producer that creates orders in SQL.
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

    /// Returns the first word of the stored text; empty for [`Other`](Self::Other).
    fn stored_word(self) -> &'static str {
        Self::ALL.iter().find(|(role, _)| *role == self).map_or("", |(_, word)| word)
    }

    /// Returns the role, with all staff roles combined into one.
    pub fn role_group(self) -> &'static str {
        match self {
            role if role.is_staff() => "staff",
            Self::Other => "other",
            role => role.stored_word(),
        }
    }

    /// Returns whether the actor is a staff member who may change something.
    pub fn is_staff(self) -> bool {
        matches!(self, Self::Dispatcher | Self::Support | Self::Operator | Self::Admin | Self::Cli)
    }
}

/// Author of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    pub role: ActorRole,
    /// Name of the person or program; empty for roles without names.
    pub name: Cow<'static, str>,
    /// API key of the request.
    pub key: Option<Uuid>,
}

impl Actor {
    /// A worker that runs a timer.
    pub const SYSTEM: Self = Self::with_fixed_name(ActorRole::System, "");
    pub const RECONCILER: Self = Self::with_fixed_name(ActorRole::Reconciler, "");

    /// Creates an actor with a fixed name and no key.
    pub const fn with_fixed_name(role: ActorRole, name: &'static str) -> Self {
        Self { role, name: Cow::Borrowed(name), key: None }
    }

    pub fn new(role: ActorRole, name: impl Into<String>, key: Option<Uuid>) -> Self {
        Self { role, name: Cow::Owned(name.into()), key }
    }

    /// Creates the actor for a driver whose request has no API key, such as an answer by phone.
    pub fn for_driver(id: &DriverId) -> Self {
        Self::new(ActorRole::Driver, id.as_str(), None)
    }

    pub fn for_partner(name: &PartnerName) -> Self {
        Self::new(ActorRole::Partner, name.as_str(), None)
    }

    /// Returns whether the actor is a staff member who may change something.
    pub fn is_staff(&self) -> bool {
        self.role.is_staff()
    }

    /// Returns the producer's name if the actor is a producer.
    pub fn producer_name(&self) -> Option<&str> {
        (self.role == ActorRole::Producer).then_some(&*self.name)
    }

    /// Parses the text that [`Display`](fmt::Display) writes. Any other text becomes [`ActorRole::Other`].
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
    fn stored_actor_parses_back() {
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
    fn name_grants_no_rights() {
        assert!(Actor::parse("operator:anna").is_staff());
        for text in ["producer:operator:anna", "driver:admin", "Operator:anna", "system", "sql", "x operator:anna"] {
            assert!(!Actor::parse(text).is_staff(), "{text}");
        }
    }
}
