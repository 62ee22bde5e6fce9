//! The id of what a message is about.

use std::fmt;

use crate::{BindingId, OrderId};

/// The id of an order or of a binding. Both are spelled alike, so a job's id does not say which of the two it is; the row of
/// the message does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubjectId(String);

impl From<OrderId> for SubjectId {
    fn from(id: OrderId) -> Self {
        Self(id.into())
    }
}

impl From<BindingId> for SubjectId {
    fn from(id: BindingId) -> Self {
        Self(id.into())
    }
}

impl fmt::Display for SubjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
