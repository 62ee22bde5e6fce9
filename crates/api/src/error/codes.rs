//! The codes of errors. The HTTP status, the OpenAPI document, docs/ERRORS.md and `GET /errors/{code}` derive from this table.

use axum::http::StatusCode;
use utoipa::openapi::{Object, ObjectBuilder, Type};

use super::fields::FieldPart;

/// A code of errors, and what all errors with this code have in common.
#[derive(Debug)]
pub(crate) struct ErrorCode {
    /// The stable word that programs match on.
    pub(crate) code: &'static str,
    /// The HTTP status; a second one where a body, not the path, names what is missing.
    statuses: &'static [u16],
    pub(crate) title: &'static str,
    /// The cause, and what the caller can do.
    pub(crate) cure: &'static str,
    /// Parts of the request that break the rule, where the code alone names them.
    pub(crate) fields: &'static [FieldPart],
}

macro_rules! error_codes {
    ($($code:ident: $($status:literal)|+, $title:literal, $cure:literal $(, $part:ident $name:literal)*;)*) => {
        $(pub(crate) static $code: ErrorCode = ErrorCode {
            code: stringify!($code),
            statuses: &[$($status),+],
            title: $title,
            cure: $cure,
            fields: &[$(FieldPart::$part($name)),*],
        };)*

        /// All codes, by status.
        pub(super) static ALL: &[&ErrorCode] = &[$(&$code),*];
    };
}

// Code: status, title, cure, and the part of the request that breaks the rule. The first code of a status is its example.
error_codes! {
    MALFORMED: 400, "The request cannot be read",
        "The body is no JSON, or the path cannot be decoded. Correct it before sending it again.";
    DISPATCHER_AREA_NOT_FOUND: 400, "Outside all areas", "The pickup lies in no area that is served.";
    UNAUTHENTICATED: 401, "No valid key",
        "The request has no key, or the key is unknown, expired or revoked. Send `Authorization: Bearer dq_...`.";
    BAD_SIGNATURE: 401, "Callback not signed",
        "The callback is not signed as it should be, or too long ago. Sign the raw body with the secret of `partners.*.callback_secret` \
         or `channels.*.token`, and check the clock.";
    FORBIDDEN: 403, "Not allowed for this key",
        "The key's role may not do this, or the key belongs to another driver. `x-roles` of the operation in `/openapi.json` names the \
         roles.";
    NOT_YOUR_ORDER: 403, "An order of another driver", "Another driver carries out the order, or no driver does.";
    NOT_YOUR_ALERT: 403, "An alert for support",
        "Dispatchers acknowledge alerts about orders that wait for a dispatcher. This one is for support.";
    NOT_FOUND: 404, "Nothing is served here", "The path is none of this API's. `/openapi.json` lists them.";
    ORDER_NOT_FOUND: 404, "No such order", "No order has this id, or it is another producer's or driver's.";
    OFFER_NOT_FOUND: 404, "No such offer", "The order has no offer with this id.";
    DRIVER_NOT_FOUND: 404, "No such driver", "No driver has this id. `dispatchq driver import` adds drivers.";
    ALERT_NOT_FOUND: 404, "No such alert", "No alert has this id.";
    AREA_NOT_FOUND: 404, "No such area", "No area has this id. `dispatchq area list` shows the areas.";
    BINDING_NOT_FOUND: 404, "No such binding", "No binding has this id. `dispatchq binding list` shows the bindings.";
    TRANSACTION_NOT_FOUND: 404, "No such transaction",
        "The binding has no transaction with this id, or retention has removed it.";
    SERVER_NOT_FOUND: 404 | 400, "No such server",
        "No provider's server has this id. `dispatchq server list` shows the servers.";
    PLAN_NOT_FOUND: 404, "No such plan",
        "No plan has this id, or retention has removed it. `dispatchq plan list` shows the plans.";
    ERROR_CODE_NOT_FOUND: 404, "No such error code", "No error has this code. Codes are written as in `error_code`.";
    QUEUE_NOT_FOUND: 404, "No such queue", "No queue has this name. The message lists the queues.";
    JOB_NOT_FOUND: 404, "No such job", "No job has this id: it was never enqueued, or has finished.";
    PARTNER_NOT_FOUND: 404, "No such partner",
        "No partner of this name is configured. `dispatchq partner list` shows the partners.";
    MESSAGE_NOT_FOUND: 404, "No such message", "No message has this id, or retention has removed it.";
    KEY_NOT_FOUND: 404, "No such key", "No live key has this id or name. `dispatchq apikey list` shows the keys.";
    USER_NOT_FOUND: 404, "No such user", "No user has this id. `dispatchq user list` shows the users.";
    SESSION_NOT_FOUND: 404, "No such session", "No session of the console has this id, or it has ended.";
    NOTHING_KNOWN: 404, "Nothing is known", "No order and no driver has this id, or it was erased before.";
    METHOD_NOT_ALLOWED: 405, "Method not allowed",
        "The path is served, and not with this method. The header `Allow` names those that are.";
    TOO_SLOW: 408, "The body came too slowly",
        "The body did not arrive within 30 s, and nothing was done. Send it again, in one go.";
    WRONG_STATE: 409, "Not in this status", "The order's status does not allow this; the message names those that do.";
    ORDER_FINISHED: 409, "The order is finished", "The order has ended and does not change any more.";
    ORDER_EXISTS: 409, "The order exists", "An order with this id exists already. Read it, or choose another id.";
    ALREADY_ASSIGNED: 409, "Another driver has the order",
        "Another driver was quicker. The offer is over; wait for the next one.";
    RESERVATION_IN_PROGRESS: 409, "Another driver is taking the order",
        "Another driver is just accepting the order. If that fails the offer holds: press again.";
    NOT_YOUR_OFFER: 409, "An offer of another driver", "The offer was made to another driver.";
    DRIVER_BUSY: 409, "The driver has another order",
        "The driver carries out another order. Complete it, or give it back first.";
    LIFETIME_OVER: 409, "The order's lifetime is over",
        "The order's time to find a driver has ended. It is not dispatched again.";
    SERVED_BY_PARTNER: 409, "A partner serves the order",
        "The order is served by a partner, so own drivers cannot do this.";
    NOTHING_PAID: 409, "Nothing was paid", "No refund is due: nothing was paid for the order, or its amount is 0.";
    REFUND_NOT_ASKED: 409, "The refund is paid by hand",
        "The payment service was not asked for a refund of this order, so its callback settles nothing.";
    REFUND_UNANSWERED: 409, "The refund id is not known yet",
        "The payment service has not answered our request yet, so it is not known which refund this is. Send the callback again.";
    IDEMPOTENCY_KEY_IN_USE: 409, "First request still running",
        "The first request with this Idempotency-Key is still running. Send the same request again in a moment.";
    BINDING_EXISTS: 409, "The binding exists", "A binding with this id exists already. Choose another id.";
    BINDING_STOPPING: 409, "The binding is stopping",
        "The binding stops once its transaction has ended. Send the request again then.";
    BINDING_PAUSED: 409, "The binding is paused", "The binding is paused. Resume it first.";
    BINDING_NOT_RUNNING: 409, "The binding does not run", "Only a binding that runs can do this. Start it first.";
    BINDING_NOT_AT_REST: 409, "The binding is at work",
        "The change needs a binding that is STOPPED and IDLE. Stop it, and wait until it is.";
    BINDING_UNRESOLVED: 409, "Transactions without a known end",
        "Transactions of the binding are UNRESOLVED. An operator must find out how they ended first.";
    OTP_STORED: 409, "An OTP was handed in",
        "Another OTP was handed in for this transaction before, and will be tried first.";
    OTP_NOT_WANTED: 409, "No OTP is waited for", "The transaction does not wait for an OTP now.";
    SERVER_EXISTS: 409, "The server exists", "A server with this id exists already. Choose another id.";
    SERVER_DISABLED: 409, "The server is disabled", "The provider's server is disabled. Enable it first.";
    PLAN_RUNNING: 409, "The plan is running", "The plan is being carried out.";
    PLAN_ENDED: 409, "The plan has ended", "The plan was carried out or cancelled before.";
    NOT_ON_ORDER: 409, "You are not on the order",
        "You leave an order that you are not on: that ended by itself after ten minutes, or another person took the order over.";
    NOT_DEAD: 409, "The job is not dead",
        "Only dead jobs are requeued or discarded. Another person may have decided on it.";
    STAYS_DEAD: 409, "The job stays dead", "Another run of the job could do nothing, or harm. The message says why.";
    JOB_RUNNING: 409, "The job is running", "A worker performs the job now. Wait for its end.";
    JOB_DEAD: 409, "The job is dead",
        "The job was given up. Decide on it with `dispatchq dead requeue` or `dead discard`.";
    JOB_WAITS_FOR_SLOTS: 409, "The job waits for slots",
        "The job runs as soon as it has its slots. It cannot be given another time.";
    JOB_WOULD_BE_PUT_BACK: 409, "The reconciler would put the job back",
        "An order, message or schedule asks for the job. End that instead; the message says how.";
    JOB_WOULD_BE_MOVED_BACK: 409, "The reconciler would move the job back",
        "The row, message or schedule of the job asks for an earlier time. The message names the latest time that stays.";
    TIME_HAS_PASSED: 409, "The time has passed",
        "A job is moved to a time in the future. To run it now, use `in_sec: 0`.";
    MESSAGE_NOT_DEAD: 409, "The message is not dead",
        "Only messages that were given up are sent again. This one is on its way, or was delivered.";
    KEY_EXISTS: 409, "A key has this name",
        "A live key has this name. Choose another name, or replace the key with `POST /api/v1/admin/keys/rotate`.";
    NAME_OWNS_ORDERS: 409, "The name has orders",
        "A producer of this name had a key before, and its orders belong to the name: a new key reads them. Choose another name. If the \
         new key is meant to have those orders, send `\"take_over\": true` (`--take-over`); the audit trail records it.";
    DRIVER_EXISTS: 409, "The driver exists",
        "A driver with this id exists already. Change it with `PATCH /api/v1/drivers/{id}`.";
    SHARDS_CHANGING: 409, "A change of the shards is under way",
        "The number of shards was changed, and that change has not ended. `dispatchq shards list` shows how far it is.";
    RECONCILER_RUNS: 409, "The reconciler is running",
        "Another process compares Redis with Postgres now. Send the request again in a moment.";
    STILL_IN_USE: 409, "Orders are in use",
        "Nothing is erased while an order is open, or a message or an alert of it waits. End the orders and acknowledge their alerts.";
    OFFER_EXPIRED: 410, "The offer has expired", "The time to answer the offer is over. Wait for the next one.";
    OFFER_DECLINED: 410, "The offer was declined",
        "The driver declined the offer before. It cannot be accepted any more.";
    OFFER_GONE: 410, "The offer is over", "The offer was withdrawn or ended in another way. Wait for the next one.";
    BINDING_DELETED: 410, "The binding is deleted", "The binding was deleted and cannot be changed any more.";
    OTP_OVER: 410, "The time for the OTP is over", "The transaction waits for its OTP no longer.";
    PLAN_EXPIRED: 410, "The plan has expired", "The plan waited too long to be run. Make a new one.";
    VERSION_CHANGED: 412, "Another version by now",
        "The thing was changed since the version in `If-Match`. Read it again, then decide.";
    TOO_LARGE: 413, "The body is too large", "A body may have 64 KiB, an import of areas, drivers or users 16 MiB.";
    NOT_JSON: 415, "The body is not JSON",
        "The body must be JSON in UTF-8, with `Content-Type: application/json` and without a `Content-Encoding`. Voice callbacks are \
         forms.";
    INVALID: 422, "The request breaks a rule",
        "The request can be read and breaks a rule. `errors` names the field and the rule; correct it before sending it again.";
    IDEMPOTENCY_KEY_REUSED: 422, "Idempotency-Key of another request",
        "This Idempotency-Key was used with another request. Use a new key for a new request.", Header "Idempotency-Key";
    PAYMENT_EVENT_REUSED: 422, "Payment event with another content",
        "An event with this id said something else before. Use a new id for a new event.", Member "event_id";
    RATE_LIMITED: 429, "Too many requests",
        "This key makes too many requests, this address had too many wrong keys, or more than one app of a driver waits for offers. Wait \
         as long as `Retry-After` says.";
    INTERNAL: 500, "A fault of ours",
        "The request failed by a bug; the log has the details under `request_id`. A change may have been made: look, or repeat it with \
         the same Idempotency-Key.";
    ILLEGAL_TRANSITION: 500, "A forbidden change of status",
        "The change was refused because no order may go from the one status to the other. This is a bug; the log has the details.";
    UNAVAILABLE: 503, "Cannot be served now",
        "Postgres cannot be asked, requests queue up, or the request did not end in time. Wait as long as `Retry-After` says and send it \
         again; with an Idempotency-Key a change is made once.";
    NOT_READY: 503, "The process is not ready",
        "The process does not reach a server that it needs; the members beside say which. It is ready again once the server is back.";
    BUSY: 503, "Changing too quickly",
        "Other requests changed the same thing at the same time. Nothing was done; send the request again.";
    DISPATCHER_AREA_THRESHOLD_REACHED: 503, "The area is full",
        "As many orders wait in the area as may. Wait as long as `Retry-After` says; `nearby_areas` names areas with room.";
    DISPATCHER_AREA_DISABLED: 503, "The area takes no orders",
        "A dispatcher has disabled the area (maintenance, emergency). Try again later.";
    DISPATCHER_SERVICE_UNAVAILABLE: 503, "Room cannot be counted",
        "Neither Redis nor Postgres can say whether there is room. Wait as long as `Retry-After` says.";
}

/// Meaning of each status of errors.
pub(crate) static STATUSES: [(StatusCode, &str); 15] = [
    (StatusCode::BAD_REQUEST, "cannot be read"),
    (StatusCode::UNAUTHORIZED, "no key, or an unknown one"),
    (StatusCode::FORBIDDEN, "this key may not do it"),
    (StatusCode::NOT_FOUND, "there is no such thing for you"),
    (StatusCode::METHOD_NOT_ALLOWED, "method not allowed"),
    (StatusCode::REQUEST_TIMEOUT, "the body did not arrive within 30 s; nothing was done"),
    (StatusCode::CONFLICT, "it does not allow this now"),
    (StatusCode::GONE, "it is over"),
    (StatusCode::PRECONDITION_FAILED, "it has another version by now"),
    (StatusCode::PAYLOAD_TOO_LARGE, "larger than 64 KiB, or than 16 MiB where areas, drivers or users are imported"),
    (StatusCode::UNSUPPORTED_MEDIA_TYPE, "no JSON"),
    (StatusCode::UNPROCESSABLE_ENTITY, "it makes no sense; the message says why"),
    (
        StatusCode::TOO_MANY_REQUESTS,
        "too many: requests of this key, wrong keys of this address, or apps of one driver that wait for offers",
    ),
    (StatusCode::INTERNAL_SERVER_ERROR, "a bug"),
    (StatusCode::SERVICE_UNAVAILABLE, "try again later"),
];

impl ErrorCode {
    /// Returns the HTTP status.
    pub(crate) fn status(&self) -> StatusCode {
        self.statuses.first().and_then(|status| StatusCode::from_u16(*status).ok()).unwrap_or_default()
    }

    /// Returns all statuses that come with the code.
    pub(super) fn statuses(&self) -> &'static [u16] {
        self.statuses
    }

    /// Returns the path of this API that explains the code.
    pub(crate) fn path(&self) -> String {
        format!("/errors/{}", self.code)
    }
}

/// Returns the entry of a code.
pub(super) fn find(code: &str) -> Option<&'static ErrorCode> {
    ALL.iter().copied().find(|known| known.code == code)
}

/// Returns the entry of a code that a capability names. A test holds that each of them has one.
pub(crate) fn of(code: &str) -> &'static ErrorCode {
    find(code).unwrap_or(&INTERNAL)
}

/// Returns the codes that come with a status.
pub(crate) fn with_status(status: StatusCode) -> impl Iterator<Item = &'static ErrorCode> {
    ALL.iter().copied().filter(move |code| code.statuses.contains(&status.as_u16()))
}

/// Returns the schema of all codes.
pub(crate) fn error_code_schema() -> Object {
    code_schema(ALL.iter().copied())
}

/// Returns the schema of the codes that come with 503.
pub(crate) fn busy_code_schema() -> Object {
    code_schema(with_status(StatusCode::SERVICE_UNAVAILABLE))
}

fn code_schema(codes: impl Iterator<Item = &'static ErrorCode>) -> Object {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some("The stable word that programs match on."))
        .enum_values(Some(codes.map(|code| code.code)))
        .build()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use model::{admission::answer, binding::BindingConflict, decide::OrderRefusal, plan::PlanConflict};
    use strum::VariantNames;

    use super::*;

    #[test]
    fn each_code_of_a_capability_has_an_entry() {
        let of_areas =
            [answer::THRESHOLD_REACHED, answer::AREA_DISABLED, answer::AREA_NOT_FOUND, answer::SERVICE_UNAVAILABLE];
        let named = [OrderRefusal::VARIANTS, BindingConflict::VARIANTS, PlanConflict::VARIANTS, &of_areas].concat();
        let lacking: Vec<_> = named.into_iter().filter(|code| find(code).is_none()).collect();
        assert_eq!(lacking, Vec::<&str>::new());
    }

    #[test]
    fn codes_are_unique_and_have_known_statuses() {
        let codes: BTreeSet<_> = ALL.iter().map(|code| code.code).collect();
        assert_eq!(codes.len(), ALL.len());
        let known: BTreeSet<_> = STATUSES.iter().map(|(status, _)| status.as_u16()).collect();
        let used: BTreeSet<_> = ALL.iter().flat_map(|code| code.statuses).copied().collect();
        assert_eq!(used, known);
    }
}
