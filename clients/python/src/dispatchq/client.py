"""The operations of a producer."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import httpx

from .errors import ApiError
from .openapi import AuthenticatedClient
from .openapi.api.events import read_events
from .openapi.api.orders import cancel_order, create_order, change_order, find_order, get_order, get_timeline, record_payment
from .openapi.models import (
    CancelledOrder,
    CancelRequest,
    EventPage,
    NewOrder,
    Order,
    OrderPatch,
    PaymentEventRequest,
    TimelineEvent,
)
from .openapi.types import UNSET
from .retry import AsyncRetryTransport, Retries, RetryTransport

# A read of the stream waits up to 50 s. The server ends a request after 60 s and reports the reason.
TIMEOUT = httpx.Timeout(75.0, connect=10.0)


class _Api(AuthenticatedClient):
    """Client for generated functions. The generated class prints its token."""

    def __repr__(self) -> str:
        return f"AuthenticatedClient(base_url={self._base_url!r})"


class _MetadataFilter:
    """Names the parameters of a filter by metadata. The generated function sends the members of this object."""

    def __init__(self, values: dict[str, str]) -> None:
        self._values = values

    def to_dict(self) -> dict[str, str]:
        return {f"metadata[{key}]": value for key, value in self._values.items()}


class Client:
    """Client of one server. Threads may share it. `key` starts with `dq_`.

    Every method raises `ApiError` for an error answer, and `httpx.TransportError` if there is none.
    `api` is for the functions of `dispatchq.openapi`. They retry and raise in the same way; pass `idempotency_key` to the
    functions that have it.
    """

    def __init__(
        self,
        base_url: str,
        key: str,
        *,
        max_retries: int = 4,
        max_wait: float = 30.0,
        timeout: httpx.Timeout = TIMEOUT,
    ) -> None:
        retries = Retries(max_retries, max_wait)
        options: dict[str, Any] = {
            "base_url": base_url.rstrip("/"),
            "headers": {"Authorization": f"Bearer {key}", "User-Agent": "dispatchq-python"},
            "timeout": timeout,
        }
        self.api: AuthenticatedClient = _Api(base_url=base_url.rstrip("/"), token=key, raise_on_unexpected_status=True)
        self.api.set_httpx_client(
            httpx.Client(**options, transport=RetryTransport(retries), event_hooks={"response": [_raise_error]})
        )
        self.api.set_async_httpx_client(
            httpx.AsyncClient(**options, transport=AsyncRetryTransport(retries), event_hooks={"response": [_raise_error_async]})
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self.api.get_httpx_client().close()

    async def aclose(self) -> None:
        """Closes the connections of asynchronous functions."""
        await self.api.get_async_httpx_client().aclose()

    def create_order(self, order: NewOrder, *, idempotency_key: str | None = None) -> Order:
        """Creates an order."""
        return _answer(create_order.sync(client=self.api, body=order, idempotency_key=idempotency_key or _new_key()), Order)

    def get_order(self, order_id: str) -> Order:
        """Returns an order."""
        return _answer(get_order.sync(order_id, client=self.api), Order)

    def get_timeline(self, order_id: str) -> list[TimelineEvent]:
        """Returns the history of an order."""
        return get_timeline.sync(order_id, client=self.api).events  # type: ignore[union-attr]

    def update_order(self, order_id: str, patch: OrderPatch) -> Order:
        """Changes the contents of an order before the pickup. A member that is `None` is removed. The change is not sent again
        after a network error."""
        return _answer(change_order.sync(order_id, client=self.api, body=patch), Order)

    def cancel_order(self, order_id: str, reason: str | None = None, *, idempotency_key: str | None = None) -> CancelledOrder:
        """Cancels an order on behalf of the customer."""
        body = CancelRequest(reason=reason)
        key = idempotency_key or _new_key()
        return _answer(cancel_order.sync(order_id, client=self.api, body=body, idempotency_key=key), CancelledOrder)

    def record_payment(self, order_id: str, payment: PaymentEventRequest, *, idempotency_key: str | None = None) -> Order:
        """Reports a payment event of an order."""
        key = idempotency_key or _new_key()
        return _answer(record_payment.sync(order_id, client=self.api, body=payment, idempotency_key=key), Order)

    def orders(self, **filters: Any) -> Iterator[Order]:
        """Iterates over the orders that match, newest first. The filters are those of `find_order`, such as `closed`, `status`,
        `from_` and `q`. `metadata` is a dict of values that the orders must have. `limit` is the number of orders per request."""
        cursor: Any = filters.pop("cursor", UNSET)
        if "metadata" in filters:
            filters["metadata"] = _MetadataFilter(filters["metadata"])
        while True:
            page: Any = find_order.sync(client=self.api, cursor=cursor, **filters)
            yield from page.orders
            if not page.next_cursor:
                return
            cursor = page.next_cursor

    def events(self, after: str | None = None, *, limit: int = 100) -> Iterator[EventPage]:
        """Iterates over the pages of the event stream after a cursor, up to now."""
        while True:
            page = self._read_events(after, limit, 0)
            yield page
            if len(page.events) < limit:
                return
            after = page.next_

    def follow_events(self, after: str | None = None, *, limit: int = 100, wait: int = 50) -> Iterator[EventPage]:
        """Iterates over the pages of the event stream after a cursor, until a request has failed in all tries. Each request waits up
        to `wait` seconds for an event."""
        while True:
            page = self._read_events(after, limit, wait)
            yield page
            after = page.next_

    def _read_events(self, after: str | None, limit: int, wait: int) -> EventPage:
        return _answer(read_events.sync(client=self.api, after=after or UNSET, limit=limit, wait=wait), EventPage)


def _new_key() -> str:
    return str(uuid.uuid4())


def _answer(parsed: Any, expected: type) -> Any:
    """Returns the parsed answer. Error answers were raised before."""
    if not isinstance(parsed, expected):
        raise TypeError(f"the answer is not a {expected.__name__}, but {parsed!r}")
    return parsed


# httpx follows no redirect, and an answer of the API is never one.
def _raise_error(response: httpx.Response) -> None:
    if response.status_code >= 300:
        response.read()
        raise ApiError(response)


async def _raise_error_async(response: httpx.Response) -> None:
    if response.status_code >= 300:
        await response.aread()
        raise ApiError(response)
