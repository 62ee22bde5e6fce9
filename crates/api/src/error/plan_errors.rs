//! Why a plan is not as it was asked for.

use axum::http::StatusCode;
use dispatch::plans::error::PlanError;
use model::plan::PlanConflict;

use super::ApiError;

/// 410: its time is over. 409: the plan is, and does not allow this.
pub(super) fn plan_conflict_status(conflict: &PlanConflict) -> StatusCode {
    match conflict {
        PlanConflict::Expired => StatusCode::GONE,
        PlanConflict::Running { .. } | PlanConflict::Done { .. } | PlanConflict::Cancelled { .. } => {
            StatusCode::CONFLICT
        }
    }
}

impl From<PlanError> for ApiError {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::NotFound(_) => Self::NoSuchPlan,
            PlanError::Conflict(conflict) => Self::PlanRefused(conflict),
            PlanError::TooMany { .. } => Self::invalid_member("filter", error.to_string()),
            PlanError::NoServer(_) => Self::UnknownServer(error.to_string()),
            PlanError::Database(error) => Self::Database(error),
            PlanError::Service(error) => Self::from(error),
        }
    }
}
