//! Why a plan was not stored, run or performed.

use model::{binding::ServerId, ids::PlanId, plan::PlanConflict};

use bindings::error::BindingError;
use foundation::error::ServiceError;

/// Why a plan is not as it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("no plan '{0}'")]
    NotFound(PlanId),
    #[error(transparent)]
    Conflict(#[from] PlanConflict),
    #[error(
        "more than {most} fit the filter, and a plan holds no more: make several, and narrow each by {narrowed_by}"
    )]
    TooMany {
        most: usize,
        /// What the filter can say more of.
        narrowed_by: &'static str,
    },
    #[error("server '{0}' does not exist")]
    NoServer(ServerId),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// What fits could not be found out.
    #[error(transparent)]
    Service(#[from] ServiceError),
}

/// Why a batch was not performed to its end. What was done stays done.
#[derive(Debug, thiserror::Error)]
pub enum PlanRunError {
    #[error("the action of the plan cannot be read: {0}")]
    Unreadable(String),
    #[error("an item of the plan ended by itself: {0}")]
    Panicked(String),
    #[error(transparent)]
    Binding(#[from] BindingError),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Service(#[from] ServiceError),
}
