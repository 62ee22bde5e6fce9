//! Errors of storing, starting and running plans.

use model::{binding::ServerId, ids::PlanId, plan::PlanConflict};

use bindings::error::BindingError;
use foundation::error::ServiceError;

/// Reason that a request about a plan failed.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("no plan '{0}'")]
    NotFound(PlanId),
    #[error(transparent)]
    Conflict(#[from] PlanConflict),
    #[error(
        "more than {most} match the filter, which is the maximum of a plan: create several plans, and narrow each by {narrowed_by}"
    )]
    TooMany {
        most: usize,
        /// Fields that can narrow the filter.
        narrowed_by: &'static str,
    },
    #[error("server '{0}' does not exist")]
    NoServer(ServerId),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// The matching items could not be determined.
    #[error(transparent)]
    Service(#[from] ServiceError),
}

/// Reason that a batch ended early. Finished items remain.
#[derive(Debug, thiserror::Error)]
pub enum PlanRunError {
    #[error("the action of the plan cannot be read: {0}")]
    Unreadable(String),
    #[error("an item of the plan panicked: {0}")]
    Panicked(String),
    #[error(transparent)]
    Binding(#[from] BindingError),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Service(#[from] ServiceError),
}
