//! The codes of errors: the status of each, its title, its explanation, and the schemas that list the codes.

mod domain_codes;
mod request_codes;

use axum::http::StatusCode;
use dispatch::admission::answer::{AREA_DISABLED, AREA_NOT_FOUND, SERVICE_UNAVAILABLE, THRESHOLD_REACHED};
use utoipa::openapi::{Object, ObjectBuilder, Type};

use self::{domain_codes::DOMAIN_CODES, request_codes::REQUEST_CODES};

/// A status, its meaning, and the codes that come with it.
type ErrorMeaning = (StatusCode, &'static str, &'static [&'static str]);

/// All statuses of errors with their codes. A test compares the list with the errors.
pub(crate) const MEANINGS: [ErrorMeaning; 15] = [
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

/// A code, its title, and its explanation. A test compares the lists with the codes of the OpenAPI document.
pub(super) type CodeEntry = (&'static str, &'static str, &'static str);

pub(super) fn list_entries() -> impl Iterator<Item = &'static CodeEntry> {
    REQUEST_CODES.iter().chain(DOMAIN_CODES)
}

/// Returns the path of this API that explains a code.
pub(crate) fn code_path(code: &str) -> String {
    format!("/errors/{code}")
}

/// Returns the title of a code. A code without an entry is its own title.
pub(crate) fn code_title(code: &str) -> &str {
    list_entries().find(|(known, ..)| *known == code).map_or(code, |(_, title, _)| *title)
}

/// Returns the statuses that come with a code.
pub(crate) fn statuses_of(code: &str) -> impl Iterator<Item = StatusCode> {
    MEANINGS.iter().filter(move |(_, _, codes)| codes.contains(&code)).map(|(status, ..)| *status)
}

/// Returns the schema of all codes.
pub(crate) fn error_code_schema() -> Object {
    code_schema(|_| true)
}

/// Returns the schema of the codes that come with 503.
pub(crate) fn busy_code_schema() -> Object {
    code_schema(|status| status == StatusCode::SERVICE_UNAVAILABLE)
}

/// Returns the schema of the codes of some statuses. It lists each code once, because client generators refuse duplicates.
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
