//! Subject of a message, and its columns in a row.

use std::fmt;

use jobs::{BindingId, InvalidBindingId, InvalidOrderId, OrderId, SubjectId};
use serde::Serialize;

/// Value of `order_id` in a row about a binding. The column is never null, so that unique keys can include it.
pub const NO_ORDER: &str = "__binding__";
/// Value of `order_id` in a row about a webhook endpoint.
pub const ENDPOINT_ORDER: &str = "__endpoint__";

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum MessageSubject {
    #[serde(rename = "order_id")]
    Order(OrderId),
    #[serde(rename = "binding_id")]
    Binding(BindingId),
}

/// Columns of a row that identify its subject.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct SubjectColumns {
    order_id: String,
    binding_id: Option<String>,
}

/// Error for a row without a valid order or binding.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSubject {
    #[error(transparent)]
    Order(#[from] InvalidOrderId),
    #[error(transparent)]
    Binding(#[from] InvalidBindingId),
}

impl MessageSubject {
    pub fn order_id(&self) -> Option<&OrderId> {
        match self {
            Self::Order(id) => Some(id),
            Self::Binding(_) => None,
        }
    }

    pub fn binding_id(&self) -> Option<&BindingId> {
        match self {
            Self::Order(_) => None,
            Self::Binding(id) => Some(id),
        }
    }

    /// Returns the id for the job of the message.
    pub fn to_id(&self) -> SubjectId {
        match self {
            Self::Order(id) => id.clone().into(),
            Self::Binding(id) => id.clone().into(),
        }
    }
}

impl TryFrom<SubjectColumns> for MessageSubject {
    type Error = InvalidSubject;

    fn try_from(columns: SubjectColumns) -> Result<Self, InvalidSubject> {
        Ok(match columns.binding_id {
            Some(id) => Self::Binding(id.parse()?),
            None => Self::Order(columns.order_id.parse()?),
        })
    }
}

/// Shows `ORD-1`, or `binding B-7`.
impl fmt::Display for MessageSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Order(id) => write!(f, "{id}"),
            Self::Binding(id) => write!(f, "binding {id}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(order: &str, binding: Option<&str>) -> Result<MessageSubject, InvalidSubject> {
        SubjectColumns { order_id: order.to_owned(), binding_id: binding.map(str::to_owned) }.try_into()
    }

    #[test]
    fn row_subject_is_order_or_binding() {
        let (order, binding) = (read("ORD-1", None).unwrap(), read(NO_ORDER, Some("B-7")).unwrap());
        assert_eq!((order.to_string(), binding.to_string()), ("ORD-1".to_owned(), "binding B-7".to_owned()));
        assert_eq!((order.to_id().to_string(), binding.to_id().to_string()), ("ORD-1".to_owned(), "B-7".to_owned()));
        assert_eq!(serde_json::to_value(&binding).unwrap(), serde_json::json!({ "binding_id": "B-7" }));
        assert!(read("ORD 1", None).is_err() && read(NO_ORDER, Some("B 7")).is_err());
    }

    #[test]
    fn previous_version_parses_binding_rows() {
        assert!(NO_ORDER.parse::<OrderId>().is_ok());
    }
}
