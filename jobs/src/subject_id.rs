//! Id of the order or binding that a message is about.

use std::fmt;

use crate::{BindingId, OrderId};

/// Id of an order or of a binding. Both have the same format, so a job's id does not show which one it is; the row of
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
