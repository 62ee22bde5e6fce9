"""Verification of webhooks (Standard Webhooks)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Maximum number of signatures that are compared. A server sends two during a rotation of its secret.
MAX_SIGNATURES = 8


class WebhookError(Exception):
    """Webhook that must be refused."""


@dataclass(frozen=True)
class WebhookEvent:
    """Event of a verified webhook. `id` is the same each time the event is sent."""

    id: str
    type: str
    timestamp: str
    version: int
    data: dict[str, Any]


def verify_webhook(
    body: bytes,
    headers: Mapping[str, str],
    secrets: str | Sequence[str],
    *,
    tolerance: float = 300,
    now: float | None = None,
) -> WebhookEvent:
    """Returns the event of a webhook, or raises `WebhookError`.

    `body` is the body byte for byte. A signature by one of `secrets` is enough. `tolerance` is the maximum difference in
    seconds between `webhook-timestamp` and `now`.
    """
    keys = [_key(secret) for secret in ([secrets] if isinstance(secrets, str) else secrets)]
    given = {name.lower(): value for name, value in headers.items()}
    try:
        message_id, sent, signatures = (given[f"webhook-{name}"] for name in ("id", "timestamp", "signature"))
    except KeyError as missing:
        raise WebhookError(f"the header {missing.args[0]} is missing") from None
    if not (sent.isascii() and sent.isdigit() and len(sent) <= 15):
        raise WebhookError("webhook-timestamp is not a number of seconds")
    if abs((time.time() if now is None else now) - int(sent)) > tolerance:
        raise WebhookError("webhook-timestamp is too far from now")
    signed = f"{message_id}.{sent}.".encode() + body
    expected = [hmac.digest(key, signed, hashlib.sha256) for key in keys]
    # Compares all pairs, so that the time does not show which one matches.
    if sum(hmac.compare_digest(one, other) for one in expected for other in _signatures(signatures)) == 0:
        raise WebhookError("no signature of webhook-signature matches")
    try:
        event = json.loads(body)
        return WebhookEvent(event["id"], event["type"], event["timestamp"], event["version"], event["data"])
    except (ValueError, KeyError, TypeError) as error:
        raise WebhookError("the body is not an event") from error


def _signatures(header: str) -> list[bytes]:
    """Returns the first signatures of version 1 that have the length of a SHA-256."""
    decoded = (_decode(one.removeprefix("v1,")) for one in header.split(" ") if one.startswith("v1,"))
    return [one for one in decoded if len(one) == hashlib.sha256().digest_size][:MAX_SIGNATURES]


def _decode(text: str) -> bytes:
    """Returns the bytes, or none if the text is not base64."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""


def _key(secret: str) -> bytes:
    key = _decode(secret.removeprefix("whsec_"))
    if not key:
        raise ValueError("a secret is whsec_ and base64")
    return key
