//! The errors in the document: what each status means, and its codes.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use dispatch::admission::answer::{AREA_DISABLED, AREA_NOT_FOUND, SERVICE_UNAVAILABLE, THRESHOLD_REACHED};
use serde_json::{Value, json};
use utoipa::{
    IntoResponses, PartialSchema, ToSchema,
    openapi::{
        Components, ContentBuilder, HeaderBuilder, Object, ObjectBuilder, Ref, RefOr, Response, ResponseBuilder, Type,
    },
};

use super::text_header;
use crate::error::{ErrorReply, FieldProblem, MEDIA_TYPE, pages};

/// A status, what it means, and the codes that come with it.
type ErrorMeaning = (StatusCode, &'static str, &'static [&'static str]);

/// A test holds it to what errors answer.
const MEANINGS: [ErrorMeaning; 15] = [
    (StatusCode::BAD_REQUEST, "cannot be read", &["MALFORMED", AREA_NOT_FOUND, "SERVER_NOT_FOUND"]),
    (StatusCode::UNAUTHORIZED, "no key, or an unknown one", &["UNAUTHENTICATED", "BAD_SIGNATURE"]),
    (StatusCode::FORBIDDEN, "this key may not do it", &["FORBIDDEN", "NOT_YOUR_ORDER", "NOT_YOUR_ALERT"]),
    (
        StatusCode::NOT_FOUND,
        "there is no such thing for you",
        &[
            "NOT_FOUND",
            "ORDER_NOT_FOUND",
            "OFFER_NOT_FOUND",
            "DRIVER_NOT_FOUND",
            "ALERT_NOT_FOUND",
            "AREA_NOT_FOUND",
            "BINDING_NOT_FOUND",
            "TRANSACTION_NOT_FOUND",
            "SERVER_NOT_FOUND",
            "PLAN_NOT_FOUND",
            "ERROR_CODE_NOT_FOUND",
            "QUEUE_NOT_FOUND",
            "JOB_NOT_FOUND",
            "PARTNER_NOT_FOUND",
            "MESSAGE_NOT_FOUND",
            "KEY_NOT_FOUND",
            "USER_NOT_FOUND",
            "SESSION_NOT_FOUND",
        ],
    ),
    (StatusCode::METHOD_NOT_ALLOWED, "method not allowed", &["METHOD_NOT_ALLOWED"]),
    (StatusCode::REQUEST_TIMEOUT, "the body did not arrive within 30 s; nothing was done", &["TOO_SLOW"]),
    (
        StatusCode::CONFLICT,
        "it does not allow this now",
        &[
            "WRONG_STATE",
            "ORDER_FINISHED",
            "ORDER_EXISTS",
            "ALREADY_ASSIGNED",
            "RESERVATION_IN_PROGRESS",
            "NOT_YOUR_OFFER",
            "DRIVER_BUSY",
            "LIFETIME_OVER",
            "SERVED_BY_PARTNER",
            "NOTHING_PAID",
            "REFUND_NOT_ASKED",
            "REFUND_UNANSWERED",
            "IDEMPOTENCY_KEY_IN_USE",
            "BINDING_EXISTS",
            "BINDING_STOPPING",
            "BINDING_PAUSED",
            "BINDING_NOT_RUNNING",
            "BINDING_NOT_AT_REST",
            "BINDING_UNRESOLVED",
            "OTP_STORED",
            "OTP_NOT_WANTED",
            "SERVER_EXISTS",
            "SERVER_DISABLED",
            "PLAN_RUNNING",
            "PLAN_ENDED",
            "NOT_ON_ORDER",
            "NOT_DEAD",
            "STAYS_DEAD",
            "JOB_RUNNING",
            "JOB_DEAD",
            "JOB_WAITS_FOR_SLOTS",
            "JOB_WOULD_BE_PUT_BACK",
            "JOB_WOULD_BE_MOVED_BACK",
            "TIME_HAS_PASSED",
            "MESSAGE_NOT_DEAD",
            "KEY_EXISTS",
            "NAME_OWNS_ORDERS",
            "DRIVER_EXISTS",
        ],
    ),
    (
        StatusCode::GONE,
        "it is over",
        &["OFFER_EXPIRED", "OFFER_DECLINED", "OFFER_GONE", "BINDING_DELETED", "OTP_OVER", "PLAN_EXPIRED"],
    ),
    (StatusCode::PRECONDITION_FAILED, "it has another version by now", &["VERSION_CHANGED"]),
    (StatusCode::PAYLOAD_TOO_LARGE, "larger than 64 KiB, or than 16 MiB where areas are imported", &["TOO_LARGE"]),
    (StatusCode::UNSUPPORTED_MEDIA_TYPE, "no JSON", &["NOT_JSON"]),
    (
        StatusCode::UNPROCESSABLE_ENTITY,
        "it makes no sense; the message says why",
        &["INVALID", "IDEMPOTENCY_KEY_REUSED", "PAYMENT_EVENT_REUSED"],
    ),
    (
        StatusCode::TOO_MANY_REQUESTS,
        "too many: requests of this key, wrong keys of this address, or apps of one driver that wait for offers",
        &["RATE_LIMITED"],
    ),
    (StatusCode::INTERNAL_SERVER_ERROR, "a bug", &["INTERNAL", "ILLEGAL_TRANSITION"]),
    (
        StatusCode::SERVICE_UNAVAILABLE,
        "try again later",
        &["UNAVAILABLE", "NOT_READY", "BUSY", THRESHOLD_REACHED, AREA_DISABLED, SERVICE_UNAVAILABLE],
    ),
];

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

/// The statuses that come with a code.
pub(crate) fn statuses_of(code: &str) -> impl Iterator<Item = StatusCode> {
    MEANINGS.iter().filter(move |(_, _, codes)| codes.contains(&code)).map(|(status, ..)| *status)
}

fn refer_to(is_possible: impl Fn(StatusCode) -> bool) -> BTreeMap<String, RefOr<Response>> {
    let possible = MEANINGS.iter().filter(|(status, ..)| is_possible(*status));
    possible.map(|(status, ..)| (status.as_str().to_owned(), Ref::from_response_name(status.as_str()).into())).collect()
}

/// The codes of all errors.
pub(crate) fn error_code_schema() -> Object {
    code_schema(|_| true)
}

/// The codes of what is refused for now.
pub(crate) fn busy_code_schema() -> Object {
    code_schema(|status| status == StatusCode::SERVICE_UNAVAILABLE)
}

/// The codes of some statuses, each once: generators of clients refuse a word that is there twice.
fn code_schema(is_wanted: impl Fn(StatusCode) -> bool) -> Object {
    let mut codes: Vec<&'static str> = Vec::new();
    let wanted = MEANINGS.iter().filter(|(status, ..)| is_wanted(*status));
    for code in wanted.flat_map(|(_, _, codes)| codes.iter().copied()) {
        if !codes.contains(&code) {
            codes.push(code);
        }
    }
    ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some("The stable word that programs match on."))
        .enum_values(Some(codes))
        .build()
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
        "type": pages::code_path(code),
        "title": pages::code_title(code),
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
        error::ServiceError,
        operator::error::JobRefusal,
        orders::{OrderRefusal, OrderStatus},
    };
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
