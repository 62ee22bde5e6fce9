"""Client of dispatchq: create orders, follow and cancel them.

`Client` has the operations of a producer. `dispatchq.openapi` is generated from the API's document and has all operations
and types; its functions accept `client.api`.
"""

from .client import Client
from .errors import ApiError, FieldProblem
from .openapi.models import (
    CancelledOrder,
    Contact,
    EventPage,
    Location,
    NewOrder,
    Order,
    OrderPatch,
    PaymentEventRequest,
    Place,
    StepEvent,
    TimelineEvent,
)
from .openapi.types import UNSET
from .retry import AsyncRetryTransport, RetryTransport
from .webhooks import WebhookError, WebhookEvent, verify_webhook

__all__ = [
    "UNSET",
    "ApiError",
    "AsyncRetryTransport",
    "CancelledOrder",
    "Client",
    "Contact",
    "EventPage",
    "FieldProblem",
    "Location",
    "NewOrder",
    "Order",
    "OrderPatch",
    "PaymentEventRequest",
    "Place",
    "RetryTransport",
    "StepEvent",
    "TimelineEvent",
    "WebhookError",
    "WebhookEvent",
    "verify_webhook",
]
