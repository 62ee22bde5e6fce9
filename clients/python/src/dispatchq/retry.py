"""Transports that send a request again when that is safe and may help.

They repeat a request that only reads, or that has an `Idempotency-Key`. Send this header only to operations whose document has
the parameter. Others ignore it, and a repeat acts twice. The transports read the whole body, because a
connection may also end within it.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field

import httpx

from .errors import retry_after

REPEATED_STATUSES = (429, 502, 503, 504)


@dataclass(frozen=True)
class Retries:
    """Limits of the retries of one request."""

    max_retries: int = 4
    max_wait: float = 30.0

    def next_wait(self, request: httpx.Request, tries: int, response: httpx.Response | None) -> float | None:
        """Returns the seconds until the next try, or `None` if there is none. `response` is `None` after a network error."""
        if tries > self.max_retries or not (request.method in ("GET", "HEAD") or "idempotency-key" in request.headers):
            return None
        asked = None
        if response is not None:
            if not may_repeat(response):
                return None
            asked = retry_after(response)
        wait = float(asked) if asked is not None else min(0.5 * 2 ** (tries - 1), 8.0)
        return None if wait > self.max_wait else wait * random.uniform(1, 1.25)


def may_repeat(response: httpx.Response) -> bool:
    """Returns whether another try may have another answer. The body has been read."""
    if response.status_code == 409:
        return b'"IDEMPOTENCY_KEY_IN_USE"' in response.content
    return response.status_code in REPEATED_STATUSES


@dataclass
class RetryTransport(httpx.BaseTransport):
    """Transport for `httpx.Client`."""

    retries: Retries = field(default_factory=Retries)
    inner: httpx.BaseTransport = field(default_factory=httpx.HTTPTransport)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        tries = 0
        while True:
            tries += 1
            response = None
            try:
                response = self.inner.handle_request(request)
                response.read()
            except httpx.TransportError:
                if (wait := self.retries.next_wait(request, tries, None)) is None:
                    raise
            else:
                if (wait := self.retries.next_wait(request, tries, response)) is None:
                    return response
            if response is not None:
                response.close()
            time.sleep(wait)

    def close(self) -> None:
        self.inner.close()


@dataclass
class AsyncRetryTransport(httpx.AsyncBaseTransport):
    """Transport for `httpx.AsyncClient`."""

    retries: Retries = field(default_factory=Retries)
    inner: httpx.AsyncBaseTransport = field(default_factory=httpx.AsyncHTTPTransport)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        tries = 0
        while True:
            tries += 1
            response = None
            try:
                response = await self.inner.handle_async_request(request)
                await response.aread()
            except httpx.TransportError:
                if (wait := self.retries.next_wait(request, tries, None)) is None:
                    raise
            else:
                if (wait := self.retries.next_wait(request, tries, response)) is None:
                    return response
            if response is not None:
                await response.aclose()
            await asyncio.sleep(wait)

    async def aclose(self) -> None:
        await self.inner.aclose()
