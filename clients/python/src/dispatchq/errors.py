"""Errors of the API as exceptions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx


@dataclass(frozen=True)
class FieldProblem:
    """A part of the request and the rule that it breaks. One of `pointer`, `parameter` and `header` names the part."""

    detail: str
    pointer: str | None = None
    parameter: str | None = None
    header: str | None = None


class ApiError(Exception):
    """Error answer of the API (RFC 9457). `body` has every member; it is empty if the answer is not JSON."""

    def __init__(self, response: httpx.Response) -> None:
        try:
            body = response.json()
        except ValueError:
            body = None
        self.body: dict[str, Any] = body if isinstance(body, dict) else {}
        self.status = response.status_code
        self.error_code: str | None = self.body.get("error_code")
        self.message: str = self.body.get("message") or response.reason_phrase
        self.type: str | None = self.body.get("type")
        self.title: str | None = self.body.get("title")
        self.detail: str | None = self.body.get("detail")
        self.instance: str | None = self.body.get("instance")
        self.request_id: str | None = self.body.get("request_id") or response.headers.get("x-request-id")
        self.retry_after = retry_after(response)
        errors = self.body.get("errors")
        self.errors = [
            FieldProblem(one.get("detail", ""), one.get("pointer"), one.get("parameter"), one.get("header"))
            for one in (errors if isinstance(errors, list) else [])
            # A proxy may answer with other members of this name.
            if isinstance(one, dict)
        ]
        super().__init__(f"{self.status} {self.error_code or ''}: {self.message}".replace(" :", ":"))


def retry_after(response: httpx.Response) -> int | None:
    """Returns the seconds of the header `Retry-After`."""
    value = response.headers.get("retry-after", "")
    return int(value) if value.isascii() and value.isdigit() else None
