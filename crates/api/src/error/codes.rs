//! Error codes. The HTTP status, the OpenAPI document, docs/ERRORS.md and `GET /errors/{code}` derive from this table.

use axum::http::StatusCode;
use utoipa::openapi::{Object, ObjectBuilder, Type};

use super::fields::FieldPart;

/// An error code, and the properties that all errors with this code share.
#[derive(Debug)]
pub(crate) struct ErrorCode {
    /// Stable code that programs match on.
    pub(crate) code: &'static str,
    /// HTTP statuses. The second one applies when the body, not the path, names the missing resource.
    statuses: &'static [u16],
    pub(crate) title: &'static str,
    /// Cause of the error, and its remedy.
    pub(crate) cure: &'static str,
    /// Parts of the request that break the rule, for codes that always concern the same part.
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

        /// All codes, ordered by status.
        pub(super) static ALL: &[&ErrorCode] = &[$(&$code),*];
    };
}

// Each entry: code, status, title, cure, and the part of the request that breaks the rule. The first code of a status
// is its example.
error_codes! {
    MALFORMED: 400, "The request cannot be read",
        "The body is not JSON, or the path cannot be decoded. Correct the request before sending it again.";
    DISPATCHER_AREA_NOT_FOUND: 400, "Outside all areas", "The pickup is in no area that is served.";
    UNAUTHENTICATED: 401, "No valid key",
        "The request has no key, or the key is unknown, expired or revoked. Send `Authorization: Bearer dq_...`.";
    BAD_SIGNATURE: 401, "Callback not signed",
        "The signature of the callback is missing or wrong, or its timestamp is too old. Sign the raw body with the \
         secret of `partners.*.callback_secret` or `channels.*.token`, and check the clock.";
    FORBIDDEN: 403, "Not allowed for this key",
        "The key's role may not do this, or the key belongs to another driver. `x-roles` of the operation in \
         `/openapi.json` lists the allowed roles.";
    OUT_OF_SCOPE: 403, "Not for keys with a scope",
        "The key may read only the orders of its scope, and this operation is not limited to a scope. Use a key without a \
         scope. docs/STAFF.md lists the operations for keys with a scope.";
    NOT_YOUR_ORDER: 403, "Order of another driver", "Another driver carries out the order, or no driver does.";
    NOT_YOUR_ALERT: 403, "Alert for support",
        "Dispatchers acknowledge alerts about orders that wait for a dispatcher. This one is for support.";
    NOT_FOUND: 404, "Path not found", "The API has no such path. `/openapi.json` lists all paths.";
    ORDER_NOT_FOUND: 404, "No such order", "No order has this id, or the order belongs to another producer or driver, or is outside of the key's scope.";
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
    ERROR_CODE_NOT_FOUND: 404, "No such error code", "No error has this code. Use the value of `error_code`.";
    QUEUE_NOT_FOUND: 404, "No such queue", "No queue has this name. The message lists the queues.";
    WORKER_NOT_FOUND: 404, "No such worker",
        "No live worker process has this id. `dispatchq worker list` shows the workers.";
    JOB_NOT_FOUND: 404, "No such job", "No job has this id: it was never enqueued, or has finished.";
    PARTNER_NOT_FOUND: 404, "No such partner",
        "No partner with this name is configured. `dispatchq partner list` shows the partners.";
    MESSAGE_NOT_FOUND: 404, "No such message", "No message has this id, or retention has removed it.";
    KEY_NOT_FOUND: 404, "No such key", "No live key has this id or name. `dispatchq apikey list` shows the keys.";
    USER_NOT_FOUND: 404, "No such user", "No user has this id. `dispatchq user list` shows the users.";
    SESSION_NOT_FOUND: 404, "No such session", "No session of the console has this id, or it has ended.";
    VIOLATION_NOT_FOUND: 404, "No such violation",
        "The proof of the history has no violation with this id, or retention has removed it.";
    ENDPOINT_NOT_FOUND: 404, "No such webhook endpoint",
        "No webhook endpoint has this id, or it belongs to another producer. `dispatchq webhook list` shows the endpoints.";
    NOTHING_KNOWN: 404, "No data found", "No data is stored under this id, or it was already erased.";
    METHOD_NOT_ALLOWED: 405, "Method not allowed",
        "The path exists, but not with this method. The header `Allow` lists the allowed methods.";
    TOO_SLOW: 408, "The body did not arrive in time",
        "The body did not arrive within 30 s, and nothing was done. Send the complete request again.";
    WRONG_STATE: 409, "Not allowed in this status",
        "The order's status does not allow this. The message names the statuses that do.";
    ORDER_FINISHED: 409, "The order is finished", "The order has ended and can no longer change.";
    ORDER_EXISTS: 409, "The order exists", "An order with this id already exists. Read it, or choose another id.";
    ALREADY_ASSIGNED: 409, "Another driver has the order",
        "Another driver accepted the order first. The offer has ended; wait for the next one.";
    RESERVATION_IN_PROGRESS: 409, "Another driver is taking the order",
        "Another driver is accepting the order. If this fails, the offer is still valid. Try again.";
    NOT_YOUR_OFFER: 409, "Offer to another driver", "The offer was made to another driver.";
    DRIVER_BUSY: 409, "The driver has another order",
        "The driver carries out another order. Complete or return it first.";
    LIFETIME_OVER: 409, "The order's lifetime has ended",
        "The order's time to find a driver has ended. It is not dispatched again.";
    SERVED_BY_PARTNER: 409, "A partner serves the order",
        "The order is served by a partner, so your own drivers cannot do this.";
    NOTHING_PAID: 409, "Nothing was paid", "No refund is due: nothing was paid for the order, or its amount is 0.";
    REFUND_NOT_ASKED: 409, "The refund is paid manually",
        "No refund of this order was requested from the payment service, so its callback has no effect.";
    REFUND_UNANSWERED: 409, "The refund id is not known yet",
        "The payment service has not answered the refund request yet, so the callback cannot be matched. Send the \
         callback again.";
    IDEMPOTENCY_KEY_IN_USE: 409, "First request still running",
        "The first request with this Idempotency-Key is still running. Send the same request again in a moment.";
    BINDING_EXISTS: 409, "The binding exists", "A binding with this id already exists. Choose another id.";
    BINDING_STOPPING: 409, "The binding is stopping",
        "The binding stops once its transaction has ended. Send the request again after that.";
    BINDING_PAUSED: 409, "The binding is paused", "The binding is paused. Resume it first.";
    BINDING_NOT_RUNNING: 409, "The binding is not running", "This requires a running binding. Start it first.";
    BINDING_NOT_AT_REST: 409, "The binding is active",
        "The change requires a binding that is STOPPED and IDLE. Stop it, and wait until it is IDLE.";
    BINDING_UNRESOLVED: 409, "Transactions without a known outcome",
        "Transactions of the binding are UNRESOLVED. An operator must first determine their outcome.";
    OTP_STORED: 409, "An OTP was already submitted",
        "Another OTP was already submitted for this transaction and is tried first.";
    OTP_NOT_WANTED: 409, "No OTP is expected", "The transaction is not waiting for an OTP.";
    SERVER_EXISTS: 409, "The server exists", "A server with this id already exists. Choose another id.";
    SERVER_DISABLED: 409, "The server is disabled", "The provider's server is disabled. Enable it first.";
    PLAN_RUNNING: 409, "The plan is running", "The plan is already running.";
    PLAN_ENDED: 409, "The plan has ended", "The plan was already completed or cancelled.";
    NOT_ON_ORDER: 409, "You do not handle the order",
        "Your claim on the order expired after ten minutes, or another person took the order over.";
    NOT_DEAD: 409, "The job is not dead",
        "Only dead jobs can be requeued or discarded. Another person may have decided on this job.";
    STAYS_DEAD: 409, "The job cannot be requeued",
        "Another run of the job would have no effect or do harm. The message explains why.";
    JOB_RUNNING: 409, "The job is running", "A worker is running the job. Wait until it has finished.";
    JOB_DEAD: 409, "The job is dead",
        "The job has no retries left. Use `dispatchq dead requeue` or `dispatchq dead discard`.";
    JOB_WAITS_FOR_SLOTS: 409, "The job waits for slots",
        "The job runs as soon as it gets its slots. It cannot be moved to another time.";
    JOB_WOULD_BE_PUT_BACK: 409, "The reconciler would restore the job",
        "An order, message or schedule needs the job. End the order, message or schedule instead; the message explains \
         how.";
    JOB_WOULD_BE_MOVED_BACK: 409, "The reconciler would move the job back",
        "The row, message or schedule of the job requires an earlier time. The message names the latest possible time.";
    TIME_HAS_PASSED: 409, "The time has passed",
        "A job can only be moved to a time in the future. To run it now, use `in_sec: 0`.";
    MESSAGE_NOT_DEAD: 409, "The message is not dead",
        "Only dead messages can be sent again. This message is pending, or was delivered.";
    KEY_EXISTS: 409, "The key name is taken",
        "A live key has this name. Choose another name, or replace the key with `POST /api/v1/admin/keys/rotate`.";
    NAME_OWNS_ORDERS: 409, "The name has orders",
        "An earlier producer with this name owns orders, and a new key with this name can read them. Choose another \
         name. If the new key should own those orders, send `\"take_over\": true` (`--take-over`); the audit trail \
         records it.";
    DRIVER_EXISTS: 409, "The driver exists",
        "A driver with this id already exists. Change it with `PATCH /api/v1/drivers/{id}`.";
    SCOPES_UNAVAILABLE: 409, "Scopes are not set up",
        "Postgres lacks the role `dispatchq_scoped`, or the login of `serve` may not use it. Run \
         `deploy/postgres/roles.sql`.";
    DECLARED_IN_CONFIG: 409, "The endpoint is declared",
        "The configuration declares this webhook endpoint. Change its `[producers.NAME]` there.";
    TOO_MANY_ENDPOINTS: 409, "Too many webhook endpoints",
        "A producer has at most 10 webhook endpoints that were created by API. Delete one first.";
    DRIVER_PAGE_OFF: 409, "The driver page is off",
        "The installation does not serve the page for drivers. Set `driver_page = true` under `[http]`.";
    SHARDS_CHANGING: 409, "A change of the shards is in progress",
        "An earlier change of the number of shards has not ended. `dispatchq shards list` shows its progress.";
    RECONCILER_RUNS: 409, "The reconciler is running",
        "Another process is comparing Redis with Postgres. Send the request again in a moment.";
    STILL_IN_USE: 409, "Orders are in use",
        "Nothing is erased while an order is open, or has a pending message or an open alert. End the orders and \
         acknowledge their alerts.";
    OFFER_EXPIRED: 410, "The offer has expired", "The time to answer the offer has passed. Wait for the next offer.";
    OFFER_DECLINED: 410, "The offer was declined",
        "The driver has already declined the offer. It can no longer be accepted.";
    OFFER_GONE: 410, "The offer has ended", "The offer was withdrawn or ended in another way. Wait for the next offer.";
    BINDING_DELETED: 410, "The binding is deleted", "The binding was deleted and can no longer be changed.";
    OTP_OVER: 410, "The time for the OTP has passed", "The transaction no longer waits for an OTP.";
    PLAN_EXPIRED: 410, "The plan has expired", "The plan was not run in time. Create a new plan.";
    VERSION_CHANGED: 412, "The version has changed",
        "The resource was changed after the version in `If-Match`. Read it again before you change it.";
    TOO_LARGE: 413, "The body is too large", "The limit is 64 KiB, or 16 MiB for an import of areas, drivers or users.";
    NOT_JSON: 415, "The body is not JSON",
        "The body must be JSON in UTF-8, with `Content-Type: application/json` and without a `Content-Encoding`. Voice \
         callbacks are forms.";
    INVALID: 422, "The request is invalid",
        "`errors` names each invalid field and the rule that it breaks. Correct the request before sending it again.";
    IDEMPOTENCY_KEY_REUSED: 422, "Idempotency-Key of another request",
        "This Idempotency-Key was used with another request. Use a new key for a new request.", Header "Idempotency-Key";
    PAYMENT_EVENT_REUSED: 422, "Payment event with different content",
        "An earlier event with this id had different content. Use a new id for a new event.", Member "event_id";
    RATE_LIMITED: 429, "Too many requests",
        "This key makes too many requests, this address sent too many wrong keys, or more than two apps of a driver \
         wait for offers. Wait for the time in `Retry-After`.";
    INTERNAL: 500, "Internal error",
        "The request failed because of an internal error; the log has the details under `request_id`. A change may \
         have been made: check, or repeat the request with the same Idempotency-Key.";
    ILLEGAL_TRANSITION: 500, "Forbidden change of status",
        "The change was refused because an order may not change between these statuses. This is an internal error; the \
         log has the details.";
    UNAVAILABLE: 503, "Temporarily unavailable",
        "Postgres does not answer, too many requests are waiting, or the request timed out. Wait for the time in \
         `Retry-After` and send the request again. With an Idempotency-Key a change is made only once.";
    OVERLOADED: 503, "Jobs are late",
        "Workers start the jobs of orders too late, so this order was not created. Wait for the time in `Retry-After` and \
         send the request again.";
    NOT_READY: 503, "The process is not ready",
        "The process cannot reach a server that it needs; `postgres` and `redis` show which. It is ready again once \
         the server is back.";
    BUSY: 503, "Too many concurrent changes",
        "Other requests changed the same resource at the same time. Nothing was done; send the request again.";
    DISPATCHER_AREA_THRESHOLD_REACHED: 503, "The area is full",
        "The waiting orders have reached the area's threshold. Wait for the time in `Retry-After`; `nearby_areas` \
         lists areas with room.";
    DISPATCHER_AREA_DISABLED: 503, "The area takes no orders",
        "A dispatcher has disabled the area (maintenance, emergency). Try again later.";
    DISPATCHER_SERVICE_UNAVAILABLE: 503, "Admission cannot be checked",
        "Neither Redis nor Postgres can report whether there is room. Wait for the time in `Retry-After`.";
}

/// Description of each error status in the OpenAPI document.
pub(crate) static STATUSES: [(StatusCode, &str); 15] = [
    (StatusCode::BAD_REQUEST, "the request cannot be read"),
    (StatusCode::UNAUTHORIZED, "the key is missing or invalid"),
    (StatusCode::FORBIDDEN, "this key is not allowed to do this"),
    (StatusCode::NOT_FOUND, "the resource does not exist, or this key may not read it"),
    (StatusCode::METHOD_NOT_ALLOWED, "the method is not allowed"),
    (StatusCode::REQUEST_TIMEOUT, "the body did not arrive within 30 s; nothing was done"),
    (StatusCode::CONFLICT, "the current state does not allow this"),
    (StatusCode::GONE, "the resource is gone"),
    (StatusCode::PRECONDITION_FAILED, "the version has changed"),
    (StatusCode::PAYLOAD_TOO_LARGE, "the body exceeds 64 KiB, or 16 MiB for an import of areas, drivers or users"),
    (StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body is not JSON"),
    (StatusCode::UNPROCESSABLE_ENTITY, "the request is invalid; the message explains why"),
    (
        StatusCode::TOO_MANY_REQUESTS,
        "too many requests of this key, wrong keys from this address, or apps of one driver that wait for offers",
    ),
    (StatusCode::INTERNAL_SERVER_ERROR, "internal error"),
    (StatusCode::SERVICE_UNAVAILABLE, "temporarily unavailable; try again later"),
];

impl ErrorCode {
    pub(crate) fn status(&self) -> StatusCode {
        self.statuses.first().and_then(|status| StatusCode::from_u16(*status).ok()).unwrap_or_default()
    }

    /// Returns all statuses of the code.
    pub(super) fn statuses(&self) -> &'static [u16] {
        self.statuses
    }

    /// Returns the path of this API that describes the code.
    pub(crate) fn path(&self) -> String {
        format!("/errors/{}", self.code)
    }
}

/// Returns the entry of a code.
pub(super) fn find(code: &str) -> Option<&'static ErrorCode> {
    ALL.iter().copied().find(|known| known.code == code)
}

/// Returns the entry of a code that another crate names. A test checks that each of these codes has an entry.
pub(crate) fn of(code: &str) -> &'static ErrorCode {
    find(code).unwrap_or(&INTERNAL)
}

/// Returns the codes of a status.
pub(crate) fn with_status(status: StatusCode) -> impl Iterator<Item = &'static ErrorCode> {
    ALL.iter().copied().filter(move |code| code.statuses.contains(&status.as_u16()))
}

/// Returns the schema of all codes.
pub(crate) fn error_code_schema() -> Object {
    code_schema(ALL.iter().copied())
}

/// Returns the schema of the codes with status 503.
pub(crate) fn busy_code_schema() -> Object {
    code_schema(with_status(StatusCode::SERVICE_UNAVAILABLE))
}

fn code_schema(codes: impl Iterator<Item = &'static ErrorCode>) -> Object {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some("Stable code that programs match on."))
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
    fn every_capability_code_has_an_entry() {
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
