//! Refusals of staff requests.

use jobs::queues;
use model::ids::DriverId;

use super::{
    ApiError,
    codes::{self, ErrorCode},
};
use accounts::{key_admin::KeyError, users::UserError};
use desk::{
    operator::error::{JobRefusal, OperateError},
    privacy::ErasureSubject,
};
use foundation::error::ServiceError;
use model::decide::requeue::RequeueRefusal;

/// A refusal of a request that staff send. Producers send those about webhook endpoints too.
#[derive(Debug, thiserror::Error)]
pub enum StaffError {
    #[error("the alert is for support; dispatchers acknowledge alerts about orders that wait for a dispatcher")]
    NotYourAlert,
    #[error("you do not handle this order: your claim expired, or another person took it over")]
    NotOnOrder,
    #[error("no queue '{0}'; queues are {known}", known = queues::ALL.join(", "))]
    NoSuchQueue(String),
    #[error("no worker with this id sent a heartbeat in the last 10 s; see: GET /api/v1/admin/workers")]
    NoSuchWorker,
    #[error("no job with this id: it was never enqueued, or has finished")]
    NoSuchJob,
    /// The job stays unchanged.
    #[error(transparent)]
    JobStays(JobRefusal),
    #[error("no partner '{0}'; see: GET /api/v1/partners")]
    NoSuchPartner(String),
    #[error("no dead job with this id")]
    NotDead,
    #[error(transparent)]
    StaysDead(RequeueRefusal),
    #[error("no message with this id, or retention has removed it")]
    NoSuchMessage,
    #[error("the message is not dead; only dead ones are sent again")]
    MessageNotDead,
    #[error("no live key with this id or name")]
    NoSuchKey,
    #[error("a live key has this name; choose another, or replace it by POST /api/v1/admin/keys/rotate")]
    KeyExists,
    #[error(
        "orders belong to the name '{0}', and a new key with this name could read them; choose another name, or send \"take_over\": true"
    )]
    NameOwnsOrders(String),
    #[error("no user with this id")]
    NoSuchUser,
    #[error("no session with this id, or it has ended")]
    NoSuchSession,
    #[error("no webhook endpoint with this id")]
    NoSuchEndpoint,
    #[error("the configuration declares this endpoint; change [producers.NAME] there")]
    EndpointDeclared,
    #[error("the producer has 10 webhook endpoints; delete one first")]
    TooManyEndpoints,
    #[error("no violation with this id; it may have been removed")]
    NoSuchViolation,
    #[error("driver '{0}' exists; change it by PATCH /api/v1/drivers/{0}")]
    DriverExists(DriverId),
    #[error("{0} has {1}; take it back first: dispatchq order release {1}")]
    DriverHasOrder(DriverId, String),
    #[error(
        "the database lacks the role dispatchq_scoped, or this login may not use it; run deploy/postgres/roles.sql"
    )]
    ScopesUnavailable,
    #[error("the page for drivers is off; set driver_page = true under [http]")]
    DriverPageOff,
    /// Contains the progress of the running change of the number of shards.
    #[error("{0}")]
    ShardsChanging(String),
    #[error("another process is reconciling; try again in a moment")]
    ReconcilerRuns,
    #[error("no data about {what} {1}", what = .0.as_str())]
    NothingKnown(ErasureSubject, String),
    /// Contains the ids of the open orders.
    #[error("in use, so nothing is erased: {orders}", orders = .0.join(", "))]
    StillInUse(Vec<String>),
    /// `story` is "not dead", or "no longer dead" with the decision on the dead job.
    #[error("{id} is {story}; see: dispatchq job show {id}")]
    NoDeadJob { id: String, story: String },
    /// The cause appears only in the log.
    #[error("a server that dispatchq needs does not answer right now; try again")]
    Service(ServiceError),
}

impl StaffError {
    pub(super) fn code(&self) -> &'static ErrorCode {
        match self {
            Self::NotYourAlert => &codes::NOT_YOUR_ALERT,
            Self::NotOnOrder => &codes::NOT_ON_ORDER,
            Self::NoSuchQueue(_) => &codes::QUEUE_NOT_FOUND,
            Self::NoSuchWorker => &codes::WORKER_NOT_FOUND,
            Self::NoSuchJob | Self::NoDeadJob { .. } => &codes::JOB_NOT_FOUND,
            Self::JobStays(refusal) => match refusal {
                JobRefusal::Absent(_) => &codes::JOB_NOT_FOUND,
                JobRefusal::Running(_) => &codes::JOB_RUNNING,
                JobRefusal::Dead(_) => &codes::JOB_DEAD,
                JobRefusal::Parked(_) => &codes::JOB_WAITS_FOR_SLOTS,
                JobRefusal::OrderAsks { .. } | JobRefusal::MessageAsks { .. } | JobRefusal::ScheduleAsks { .. } => {
                    &codes::JOB_WOULD_BE_PUT_BACK
                }
                JobRefusal::TooLate { .. } => &codes::JOB_WOULD_BE_MOVED_BACK,
                JobRefusal::Past { .. } => &codes::TIME_HAS_PASSED,
            },
            Self::NoSuchPartner(_) => &codes::PARTNER_NOT_FOUND,
            Self::NotDead => &codes::NOT_DEAD,
            Self::StaysDead(_) => &codes::STAYS_DEAD,
            Self::NoSuchMessage => &codes::MESSAGE_NOT_FOUND,
            Self::MessageNotDead => &codes::MESSAGE_NOT_DEAD,
            Self::NoSuchKey => &codes::KEY_NOT_FOUND,
            Self::KeyExists => &codes::KEY_EXISTS,
            Self::NameOwnsOrders(_) => &codes::NAME_OWNS_ORDERS,
            Self::NoSuchUser => &codes::USER_NOT_FOUND,
            Self::NoSuchSession => &codes::SESSION_NOT_FOUND,
            Self::NoSuchEndpoint => &codes::ENDPOINT_NOT_FOUND,
            Self::EndpointDeclared => &codes::DECLARED_IN_CONFIG,
            Self::TooManyEndpoints => &codes::TOO_MANY_ENDPOINTS,
            Self::NoSuchViolation => &codes::VIOLATION_NOT_FOUND,
            Self::DriverExists(_) => &codes::DRIVER_EXISTS,
            Self::DriverHasOrder(..) => &codes::DRIVER_BUSY,
            Self::ScopesUnavailable => &codes::SCOPES_UNAVAILABLE,
            Self::DriverPageOff => &codes::DRIVER_PAGE_OFF,
            Self::ShardsChanging(_) => &codes::SHARDS_CHANGING,
            Self::ReconcilerRuns => &codes::RECONCILER_RUNS,
            Self::NothingKnown(..) => &codes::NOTHING_KNOWN,
            Self::StillInUse(_) => &codes::STILL_IN_USE,
            Self::Service(_) => &codes::UNAVAILABLE,
        }
    }
}

impl From<StaffError> for ApiError {
    fn from(error: StaffError) -> Self {
        Self::Staff(error)
    }
}

impl From<ServiceError> for ApiError {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Database(error) => Self::Database(error),
            other => Self::Staff(StaffError::Service(other)),
        }
    }
}

impl From<OperateError> for ApiError {
    fn from(error: OperateError) -> Self {
        match error {
            OperateError::Refused(refusal) => Self::Staff(StaffError::JobStays(refusal)),
            OperateError::TooLong => Self::Invalid(error.to_string()),
            OperateError::Store(error) => ServiceError::from(error).into(),
            OperateError::Database(error) => Self::Database(error),
            OperateError::Schedule(error) => ServiceError::Unusable(error.to_string()).into(),
        }
    }
}

impl From<KeyError> for ApiError {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::NameTaken(_) => Self::Staff(StaffError::KeyExists),
            KeyError::OwnsOrders(name) => Self::Staff(StaffError::NameOwnsOrders(name)),
            KeyError::NoSuchName(_) => Self::Staff(StaffError::NoSuchKey),
            KeyError::BadName(_) => Self::invalid_member("name", error.to_string()),
            KeyError::NoSuchDriver(_) => Self::invalid_member("driver_id", format!("driver_id: {error}")),
            KeyError::NoScopes => Self::Staff(StaffError::ScopesUnavailable),
            KeyError::Database(error) => Self::Database(error),
        }
    }
}

impl From<UserError> for ApiError {
    fn from(error: UserError) -> Self {
        match error {
            UserError::NotFound => Self::Staff(StaffError::NoSuchUser),
            UserError::Invalid(text) => Self::Invalid(text),
            UserError::NoScopes => Self::Staff(StaffError::ScopesUnavailable),
            UserError::Database(error) => Self::Database(error),
        }
    }
}
