//! Reasons why a change was not written.

use model::decide::OrderRefusal;

#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// Another transaction changed the order or took the driver first: decide again.
    #[error("another change was written first")]
    Conflict,
    /// The area of the order has no room for the change.
    #[error("the area of the order is full")]
    NoRoom,
    #[error(transparent)]
    Refused(#[from] OrderRefusal),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}
