//! The errors in the document: what each status means, and its codes.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use serde_json::{Value, json};
use utoipa::{
    IntoResponses, PartialSchema, ToSchema,
    openapi::{Components, ContentBuilder, HeaderBuilder, ObjectBuilder, Ref, RefOr, Response, ResponseBuilder, Type},
};

use super::text_header;
use crate::error::{
    ErrorReply, FieldProblem, MEDIA_TYPE,
    codes::{MEANINGS, code_path, code_title},
};

/// The errors of most operations.
pub(crate) struct CallErrors;

impl IntoResponses for CallErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        refer_to(|status| status != StatusCode::PRECONDITION_FAILED)
    }
}

/// The errors of operations on areas, which know versions and no orders.
pub(crate) struct AreaErrors;

impl IntoResponses for AreaErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        refer_to(|status| ![StatusCode::CONFLICT, StatusCode::GONE].contains(&status))
    }
}

/// The errors of what asks for no key and no body.
pub(crate) struct ProbeErrors;

impl IntoResponses for ProbeErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        refer_to(|status| OF_PROBES.contains(&status))
    }
}

/// As [`ProbeErrors`], of what may be about something that is not there.
pub(crate) struct PageErrors;

impl IntoResponses for PageErrors {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        refer_to(|status| status == StatusCode::NOT_FOUND || OF_PROBES.contains(&status))
    }
}

const OF_PROBES: [StatusCode; 5] = [
    StatusCode::METHOD_NOT_ALLOWED,
    StatusCode::REQUEST_TIMEOUT,
    StatusCode::UNPROCESSABLE_ENTITY,
    StatusCode::INTERNAL_SERVER_ERROR,
    StatusCode::SERVICE_UNAVAILABLE,
];

fn refer_to(is_possible: impl Fn(StatusCode) -> bool) -> BTreeMap<String, RefOr<Response>> {
    let possible = MEANINGS.iter().filter(|(status, ..)| is_possible(*status));
    possible.map(|(status, ..)| (status.as_str().to_owned(), Ref::from_response_name(status.as_str()).into())).collect()
}

/// Describes each error once; operations refer to it.
pub(super) fn add_error_answers(components: &mut Components) {
    components.schemas.insert(ErrorReply::name().into_owned(), ErrorReply::schema());
    components.schemas.insert(FieldProblem::name().into_owned(), FieldProblem::schema());
    for (status, meaning, codes) in MEANINGS {
        let schema = Ref::from_schema_name(ErrorReply::name());
        let body = ContentBuilder::new().schema(Some(schema)).example(Some(example_error(status, meaning, codes)));
        let mut answer = ResponseBuilder::new()
            .description(format!("{meaning} ({})", codes.join(", ")))
            .content(MEDIA_TYPE, body.build());
        if status == StatusCode::UNAUTHORIZED {
            answer =
                answer.header("WWW-Authenticate", text_header("what is asked for: Bearer, or Signature of callbacks"));
        }
        if [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE].contains(&status) {
            let secs = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)).build();
            let wait = HeaderBuilder::new().schema(secs).description(Some("seconds to wait")).build();
            answer = answer.header("Retry-After", wait);
        }
        components.responses.insert(status.as_str().to_owned(), answer.build().into());
    }
}

/// An error with the first of these codes.
fn example_error(status: StatusCode, meaning: &str, codes: &[&str]) -> Value {
    let code = codes.first().copied().unwrap_or_default();
    let mut example = json!({
        "error_code": code,
        "message": meaning,
        "type": code_path(code),
        "title": code_title(code),
        "status": status.as_u16(),
        "detail": meaning,
        "instance": "/api/v1/orders",
        "request_id": "019ba1c0-0000-7000-8000-000000000002",
    });
    if status == StatusCode::UNPROCESSABLE_ENTITY {
        example["errors"] = json!([{ "pointer": "#/pickup/latitude", "detail": meaning }]);
    }
    example
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use chrono::DateTime;
    use dispatch::{
        accounts::known_keys::LookupError,
        admission::{
            answer::{AdmissionAnswer, AreaDetails, ReplyLanguage},
            decide::AdmissionRefusal,
        },
        dead_letters::requeue_policy::RequeueRefusal,
        operator::error::JobRefusal,
        orders::{OrderRefusal, OrderStatus},
    };
    use foundation::error::ServiceError;
    use model::{
        binding::{BindingConflict, BindingPhase, BindingState, InvalidBindingConfig},
        plan::PlanConflict,
    };
    use workers::JobId;

    use super::*;
    use crate::error::{ApiError, StaffError};

    /// The refusal after this one, so that the compiler asks for each that is new.
    fn next_refusal(refusal: &OrderRefusal) -> Option<OrderRefusal> {
        Some(match refusal {
            OrderRefusal::OrderFinished(_) => {
                OrderRefusal::WrongState { status: OrderStatus::Pending, allowed: "ASSIGNED" }
            }
            OrderRefusal::WrongState { .. } => OrderRefusal::AlreadyAssigned,
            OrderRefusal::AlreadyAssigned => OrderRefusal::ReservationInProgress,
            OrderRefusal::ReservationInProgress => OrderRefusal::NoSuchOffer,
            OrderRefusal::NoSuchOffer => OrderRefusal::NotYourOffer,
            OrderRefusal::NotYourOffer => OrderRefusal::OfferExpired,
            OrderRefusal::OfferExpired => OrderRefusal::OfferDeclined,
            OrderRefusal::OfferDeclined => OrderRefusal::OfferGone("withdrawn"),
            OrderRefusal::OfferGone(_) => OrderRefusal::DriverBusy,
            OrderRefusal::DriverBusy => OrderRefusal::NotYourOrder,
            OrderRefusal::NotYourOrder => OrderRefusal::NoSuchOrder,
            OrderRefusal::NoSuchOrder => OrderRefusal::NoSuchDriver,
            OrderRefusal::NoSuchDriver => OrderRefusal::PaymentEventReused,
            OrderRefusal::PaymentEventReused => {
                OrderRefusal::Illegal { from: OrderStatus::Completed, to: OrderStatus::Pending }
            }
            OrderRefusal::Illegal { .. } => OrderRefusal::NothingPaid,
            OrderRefusal::NothingPaid => OrderRefusal::RefundNotAsked,
            OrderRefusal::RefundNotAsked => OrderRefusal::RefundUnanswered,
            OrderRefusal::RefundUnanswered => OrderRefusal::LifetimeOver,
            OrderRefusal::LifetimeOver => OrderRefusal::ServedByPartner,
            OrderRefusal::ServedByPartner => return None,
        })
    }

    /// As [`next_refusal`], of bindings.
    fn next_conflict(conflict: &BindingConflict) -> Option<BindingConflict> {
        let (state, phase) = (BindingState::Running, BindingPhase::Idle);
        let out_of_bounds =
            InvalidBindingConfig::OutOfBounds { field: "max_failures", value: 0, least: 1, most: 10_000 };
        Some(match conflict {
            BindingConflict::Deleted => BindingConflict::Stopping,
            BindingConflict::Stopping => BindingConflict::Paused,
            BindingConflict::Paused => BindingConflict::NotRunning,
            BindingConflict::NotRunning => BindingConflict::NotAtRest { state, phase },
            BindingConflict::NotAtRest { .. } => BindingConflict::Unresolved(1),
            BindingConflict::Unresolved(_) => BindingConflict::BadConfig(out_of_bounds),
            BindingConflict::BadConfig(_) => BindingConflict::ForeignTransaction("B.1".parse().ok()?),
            BindingConflict::ForeignTransaction(_) => BindingConflict::OtpStored,
            BindingConflict::OtpStored => BindingConflict::OtpNotWanted(phase),
            BindingConflict::OtpNotWanted(_) => BindingConflict::OtpOver,
            BindingConflict::OtpOver => return None,
        })
    }

    /// As [`next_refusal`], of plans.
    fn next_plan_conflict(conflict: &PlanConflict) -> Option<PlanConflict> {
        let anna = || "operator:anna".to_owned();
        Some(match conflict {
            PlanConflict::Running { .. } => PlanConflict::Done { run_by: anna() },
            PlanConflict::Done { .. } => PlanConflict::Cancelled { cancelled_by: anna() },
            PlanConflict::Cancelled { .. } => PlanConflict::Expired,
            PlanConflict::Expired => return None,
        })
    }

    fn job() -> JobId {
        JobId::parse("notify:ORD-1:7").unwrap()
    }

    /// As [`next_refusal`], of jobs.
    fn next_job_refusal(refusal: &JobRefusal) -> Option<JobRefusal> {
        let at = DateTime::UNIX_EPOCH;
        Some(match refusal {
            JobRefusal::Running(_) => JobRefusal::Dead(job()),
            JobRefusal::Dead(_) => JobRefusal::Parked(job()),
            JobRefusal::Parked(_) => JobRefusal::Absent(job()),
            JobRefusal::Absent(_) => JobRefusal::ScheduleAsks { job: job(), schedule: "cleanup" },
            JobRefusal::OrderAsks { .. } | JobRefusal::MessageAsks { .. } | JobRefusal::ScheduleAsks { .. } => {
                JobRefusal::TooLate { job: job(), by: "order", due: at, wanted: at, latest: at }
            }
            JobRefusal::TooLate { .. } => JobRefusal::Past { job: job(), at },
            JobRefusal::Past { .. } => return None,
        })
    }

    /// As [`next_refusal`], of what staff ask for.
    fn next_staff_error(error: &StaffError) -> Option<StaffError> {
        Some(match error {
            StaffError::NotYourAlert => StaffError::NotOnOrder,
            StaffError::NotOnOrder => StaffError::NoSuchQueue("mail-queue".to_owned()),
            StaffError::NoSuchQueue(_) => StaffError::NoSuchJob,
            StaffError::NoSuchJob => StaffError::JobStays(JobRefusal::Running(job())),
            StaffError::JobStays(refusal) => match next_job_refusal(refusal) {
                Some(next) => StaffError::JobStays(next),
                None => StaffError::NoSuchPartner("bbd".to_owned()),
            },
            StaffError::NoSuchPartner(_) => StaffError::NotDead,
            StaffError::NotDead => StaffError::StaysDead(RequeueRefusal::NoMessage),
            StaffError::StaysDead(_) => StaffError::NoSuchMessage,
            StaffError::NoSuchMessage => StaffError::MessageNotDead,
            StaffError::MessageNotDead => StaffError::NoSuchKey,
            StaffError::NoSuchKey => StaffError::KeyExists,
            StaffError::KeyExists => StaffError::NameOwnsOrders("shop".to_owned()),
            StaffError::NameOwnsOrders(_) => StaffError::NoSuchUser,
            StaffError::NoSuchUser => StaffError::NoSuchSession,
            StaffError::NoSuchSession => StaffError::DriverExists("DRV-1".into()),
            StaffError::DriverExists(_) => StaffError::Service(ServiceError::Incomplete("away".to_owned())),
            StaffError::Service(_) => return None,
        })
    }

    /// As [`next_refusal`], of all errors.
    fn next_error(error: &ApiError) -> Option<ApiError> {
        let text = || "text".to_owned();
        let wait = Duration::from_secs(1);
        Some(match error {
            ApiError::Unauthenticated(_) => ApiError::Forbidden(text()),
            ApiError::Forbidden(_) => ApiError::NoSuchOrder,
            ApiError::NoSuchOrder => ApiError::NoSuchAlert,
            ApiError::NoSuchAlert => ApiError::NoSuchDriver,
            ApiError::NoSuchDriver => ApiError::NoSuchArea,
            ApiError::NoSuchArea => ApiError::NoSuchBinding,
            ApiError::NoSuchBinding => ApiError::NoSuchTransaction,
            ApiError::NoSuchTransaction => ApiError::NoSuchServer,
            ApiError::NoSuchServer => ApiError::NoSuchPlan,
            ApiError::NoSuchPlan => ApiError::NoSuchErrorCode,
            ApiError::NoSuchErrorCode => ApiError::UnknownServer(text()),
            ApiError::UnknownServer(_) => ApiError::BindingExists(text()),
            ApiError::BindingExists(_) => ApiError::ServerExists(text()),
            ApiError::ServerExists(_) => ApiError::ServerDisabled(text()),
            ApiError::ServerDisabled(_) => ApiError::BindingRefused(BindingConflict::Deleted),
            ApiError::BindingRefused(conflict) => {
                let first = || ApiError::PlanRefused(PlanConflict::Running { run_by: text() });
                next_conflict(conflict).map_or_else(first, ApiError::BindingRefused)
            }
            ApiError::PlanRefused(conflict) => {
                let first = || ApiError::Staff(StaffError::NotYourAlert);
                next_plan_conflict(conflict).map_or_else(first, ApiError::PlanRefused)
            }
            ApiError::Staff(error) => {
                next_staff_error(error).map_or_else(|| ApiError::Changed(text()), ApiError::Staff)
            }
            ApiError::Changed(_) => ApiError::BadSignature(text()),
            ApiError::BadSignature(_) => ApiError::Malformed(text()),
            ApiError::Malformed(_) => ApiError::Invalid(text()),
            ApiError::Invalid(_) => ApiError::invalid_member("pickup/latitude", "text"),
            ApiError::InvalidField { .. } => ApiError::TooLarge(1024),
            ApiError::TooLarge(_) => ApiError::NotJson,
            ApiError::NotJson => ApiError::NotForm,
            ApiError::NotForm => ApiError::Encoded,
            ApiError::Encoded => ApiError::IdempotencyMismatch,
            ApiError::IdempotencyMismatch => ApiError::IdempotencyRunning,
            ApiError::IdempotencyRunning => ApiError::OrderExists(text()),
            ApiError::OrderExists(_) => ApiError::Busy,
            ApiError::Busy => ApiError::TooSlow,
            ApiError::TooSlow => ApiError::Panicked,
            ApiError::Panicked => ApiError::NoAnswer,
            ApiError::NoAnswer => ApiError::Overloaded,
            ApiError::Overloaded => ApiError::Database(sqlx::Error::PoolClosed),
            ApiError::Database(_) => ApiError::Batch(sqlx::Error::PoolClosed.into()),
            ApiError::Batch(_) => ApiError::NoLookup(LookupError::Overrun),
            ApiError::NoLookup(LookupError::Overrun) => ApiError::NoLookup(LookupError::Unanswered("away".into())),
            ApiError::NoLookup(LookupError::Unanswered(_)) => ApiError::TooManyRequests(wait),
            ApiError::TooManyRequests(_) => ApiError::TooManyFailures(wait),
            ApiError::TooManyFailures(_) => ApiError::SentAway,
            ApiError::SentAway => ApiError::TripTaken(OrderRefusal::AlreadyAssigned, text()),
            ApiError::TripTaken(..) => refused(AdmissionAnswer::NoArea),
            ApiError::NoRoom(answer, _) => match **answer {
                AdmissionAnswer::NoArea => refused(AdmissionAnswer::Unavailable),
                AdmissionAnswer::Unavailable => refused(busy_area(AdmissionRefusal::Full)),
                AdmissionAnswer::Refused(AdmissionRefusal::Full, _) => refused(busy_area(AdmissionRefusal::Forced)),
                AdmissionAnswer::Refused(AdmissionRefusal::Forced, _) => refused(busy_area(AdmissionRefusal::Disabled)),
                AdmissionAnswer::Refused(AdmissionRefusal::Disabled, _)
                | AdmissionAnswer::Available(_)
                | AdmissionAnswer::Bypassed(_)
                | AdmissionAnswer::Anywhere => ApiError::Refused(OrderRefusal::OrderFinished(OrderStatus::Completed)),
            },
            ApiError::Refused(refusal) => ApiError::Refused(next_refusal(refusal)?),
        })
    }

    fn refused(answer: AdmissionAnswer) -> ApiError {
        ApiError::NoRoom(Box::new(answer), ReplyLanguage::English)
    }

    fn busy_area(why: AdmissionRefusal) -> AdmissionAnswer {
        let told = AreaDetails {
            area_id: "JKT-PUSAT".into(),
            waiting: 105,
            threshold: 100,
            with_bypass: None,
            loyalty: None,
            estimated_wait_sec: 120,
            retry_after_sec: 60,
            oldest_waiting_since: None,
            reason: None,
            nearby: Vec::new(),
        };
        AdmissionAnswer::Refused(why, told)
    }

    #[test]
    fn the_described_errors_are_those_there_are() {
        let described: BTreeSet<_> = MEANINGS
            .iter()
            .flat_map(|(status, _, codes)| codes.iter().map(|code| (status.as_u16(), (*code).to_owned())))
            .collect();
        let every = std::iter::successors(Some(ApiError::Unauthenticated("no key")), next_error);
        let mut answered: BTreeSet<_> =
            every.map(|error| (error.status_code().as_u16(), error.error_code().to_owned())).collect();
        // Of the router itself, and of /readyz.
        let others = [(404, "NOT_FOUND"), (405, "METHOD_NOT_ALLOWED"), (503, "NOT_READY")];
        answered.extend(others.map(|(status, code)| (status, code.to_owned())));
        assert_eq!(described, answered);
    }
}
