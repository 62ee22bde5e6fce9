//! Codes about requests, callers and this process.

use super::CodeEntry;

pub(super) const REQUEST_CODES: &[CodeEntry] = &[
    (
        "BAD_SIGNATURE",
        "Callback not signed",
        "The callback is not signed as it should be, or too long ago. Sign the raw body with the secret of \
         `partners.*.callback_secret` or `channels.*.token`, and check the clock.",
    ),
    (
        "BUSY",
        "Changing too quickly",
        "Other requests changed the same thing at the same time. Nothing was done; send the request again.",
    ),
    ("ERROR_CODE_NOT_FOUND", "No such error code", "No error has this code. Codes are written as in `error_code`."),
    (
        "FORBIDDEN",
        "Not allowed for this key",
        "The key's role may not do this, or the key belongs to another driver. `x-roles` of the operation in \
         `/openapi.json` names the roles.",
    ),
    (
        "IDEMPOTENCY_KEY_IN_USE",
        "First request still running",
        "The first request with this Idempotency-Key is still running. Send the same request again in a moment.",
    ),
    (
        "IDEMPOTENCY_KEY_REUSED",
        "Idempotency-Key of another request",
        "This Idempotency-Key was used with another request. Use a new key for a new request.",
    ),
    (
        "INTERNAL",
        "A fault of ours",
        "The request failed by a bug; the log has the details under `request_id`. A change may have been made: \
         look, or repeat it with the same Idempotency-Key.",
    ),
    (
        "INVALID",
        "The request breaks a rule",
        "The request can be read and breaks a rule. `errors` names the field and the rule; correct it before \
         sending it again.",
    ),
    (
        "MALFORMED",
        "The request cannot be read",
        "The body is no JSON, or the path cannot be decoded. Correct it before sending it again.",
    ),
    (
        "METHOD_NOT_ALLOWED",
        "Method not allowed",
        "The path is served, and not with this method. The header `Allow` names those that are.",
    ),
    ("NOT_FOUND", "Nothing is served here", "The path is none of this API's. `/openapi.json` lists them."),
    (
        "NOT_JSON",
        "The body is not JSON",
        "The body must be JSON in UTF-8, with `Content-Type: application/json` and without a `Content-Encoding`. Voice \
     callbacks are forms.",
    ),
    (
        "NOT_READY",
        "The process is not ready",
        "The process does not reach a server that it needs; the members beside say which. It is ready again once \
         the server is back.",
    ),
    (
        "RATE_LIMITED",
        "Too many requests",
        "This key makes too many requests, this address had too many wrong keys, or more than one app of a driver \
         waits for offers. Wait as long as `Retry-After` says.",
    ),
    ("TOO_LARGE", "The body is too large", "A body may have 64 KiB, an import of areas 16 MiB."),
    (
        "TOO_SLOW",
        "The body came too slowly",
        "The body did not arrive within 30 s, and nothing was done. Send it again, in one go.",
    ),
    (
        "UNAUTHENTICATED",
        "No valid key",
        "The request has no key, or the key is unknown, expired or revoked. Send `Authorization: Bearer dq_...`.",
    ),
    (
        "UNAVAILABLE",
        "Cannot be served now",
        "Postgres cannot be asked, requests queue up, or the request did not end in time. Wait as long as \
         `Retry-After` says and send it again; with an Idempotency-Key a change is made once.",
    ),
    (
        "VERSION_CHANGED",
        "Another version by now",
        "The thing was changed since the version in `If-Match`. Read it again, then decide.",
    ),
    (
        "KEY_EXISTS",
        "A key has this name",
        "A live key has this name. Choose another name, or replace the key with `POST /api/v1/admin/keys/rotate`.",
    ),
    (
        "NAME_OWNS_ORDERS",
        "The name has orders",
        "A producer of this name had a key before, and its orders belong to the name: a new key reads them. Choose another \
         name. If the new key is meant to have those orders, send `\"take_over\": true` (`--take-over`); the audit trail records it.",
    ),
    ("KEY_NOT_FOUND", "No such key", "No live key has this id or name. `dispatchq apikey list` shows the keys."),
    ("SESSION_NOT_FOUND", "No such session", "No session of the console has this id, or it has ended."),
    ("USER_NOT_FOUND", "No such user", "No user has this id. `dispatchq user list` shows the users."),
];
