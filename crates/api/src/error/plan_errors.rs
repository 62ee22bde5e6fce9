//! Conversion of plan errors into API errors.

use super::ApiError;
use desk::plans::error::PlanError;

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
