"""The proof of clients/README.md in Python: proof.py SETTINGS, with the file that scripts/prove-clients writes."""

import asyncio
import json
import queue
import sys
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from dispatchq import ApiError, Client, Location, NewOrder, OrderPatch, PaymentEventRequest, Place, WebhookError, verify_webhook
from dispatchq.openapi.api.areas import check_availability
from dispatchq.openapi.api.orders import create_order, get_order
from dispatchq.openapi.models import AvailabilityRequest

settings = json.load(open(sys.argv[1], encoding="utf-8"))
received = queue.Queue()


def check(what, found):
    if not found:
        sys.exit(f"FOUND   python: {what}")
    print(f"ok      python: {what}", flush=True)


class Receiver(BaseHTTPRequestHandler):
    """The producer's receiver. It answers 401 to a webhook without a valid signature."""

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            event = verify_webhook(body, self.headers, settings["secret"])
        except WebhookError:
            self.send_response(401)
        else:
            received.put((event, body, dict(self.headers)))
            self.send_response(204)
        self.end_headers()


def new_order(name, latitude=-6.2088, longitude=106.8456):
    return NewOrder(service_type="RIDE", pickup=Place(latitude=latitude, longitude=longitude), order_id=f"python-{name}")


def refused(body, headers, secrets, now=None):
    try:
        verify_webhook(body, headers, secrets, now=now)
    except WebhookError:
        return True
    return False


def error_of(call):
    try:
        call()
    except ApiError as error:
        return error
    sys.exit("FOUND   python: an error answer raises no ApiError")


def await_webhook(kind, order_id):
    while True:
        event, body, headers = received.get(timeout=60)
        if (event.type, event.data["order_id"]) == (kind, order_id):
            return event, body, headers


def await_event(client, kind, order_id, after=None):
    for page in client.follow_events(after):
        for event in page.events:
            if (event.type_, event.data.order_id) == (kind, order_id):
                return page.next_, event


for case in settings["webhooks"]:
    found = refused(case["body"].encode(), case["headers"], case["secrets"], case["now"])
    if found == case["accepted"]:
        sys.exit(f"FOUND   python: a webhook {case['name']}")
check(f"{len(settings['webhooks'])} webhooks are accepted or refused as they should be", len(settings["webhooks"]) > 20)

receiver = ThreadingHTTPServer(("127.0.0.1", settings["port"]), Receiver)
threading.Thread(target=receiver.serve_forever, daemon=True).start()
relayed, client = Client(settings["relay"], settings["key"]), Client(settings["url"], settings["key"])

printed = f"{client!r} {vars(client)!r} {client.api!s} {client.api.get_httpx_client().headers!r}"
check("a client is printed without its key", settings["url"] in printed and settings["key"] not in printed)

made = relayed.create_order(new_order("1"))
check("an order is created although the first answer is lost and the next tries are refused", made.order_id == "python-1")

key = str(uuid.uuid4())
made = client.create_order(new_order("2"), idempotency_key=key)
again = client.create_order(new_order("2"), idempotency_key=key)
found = list(client.orders(q="python-2"))
check("the same key makes one order", made.created_at == again.created_at and [one.order_id for one in found] == ["python-2"])
error = error_of(lambda: client.create_order(new_order("3"), idempotency_key=key))
check("the same key for another order is refused", (error.status, error.error_code) == (422, "IDEMPOTENCY_KEY_REUSED"))
check("the order is read", client.get_order("python-2").order_id == "python-2")
changed = client.update_order("python-2", OrderPatch(notes="Ring twice.", dropoff=None))
check("the contents of the order are changed", changed.notes == "Ring twice.")
client.create_order(new_order("3"))
listed = [one.order_id for one in client.orders(limit=1)]
check("a list is read page by page", listed == ["python-3", "python-2", "python-1"])

event, body, headers = await_webhook("order.created", "python-2")
check("a webhook reports the order", event.version == 1 and event.data["seq"] > 0)
check("it is signed by the previous secret too", not refused(body, headers, [settings["secret_previous"]]))
check("a wrong secret is refused", refused(body, headers, ["whsec_" + "A" * 32]))
check("a changed body is refused", refused(body + b" ", headers, [settings["secret"]]))

cursor, step = await_event(client, "order.created", "python-2")
check("the stream reports the order", step.data.seq == event.data["seq"])
pages = list(client.events(limit=1))
orders = [one.data.order_id for page in pages for one in page.events if one.type_ == "order.created"]
check("the stream is read page by page", sorted(orders) == ["python-1", "python-2", "python-3"])

paid = client.record_payment("python-2", PaymentEventRequest(event_id="pay-python", payment_status="PENDING"))
check("a payment event is recorded", paid.payment_status == "PENDING")
gone = client.cancel_order("python-2", "found a lift")
check("the order is cancelled", gone.status == "CANCELLED_BY_USER")
event, _, _ = await_webhook("order.cancelled", "python-2")
_, step = await_event(client, "order.cancelled", "python-2", cursor)
check("a webhook and the stream report it", event.data["seq"] == step.data.seq)
steps = client.get_timeline("python-2")
check("its timeline has both", (steps[0].reason, steps[-1].to_status) == ("ORDER_CREATED", "CANCELLED_BY_USER"))

error = error_of(lambda: relayed.get_order("moved"))
check("a redirect is an error object", error.status == 301)
error = error_of(lambda: relayed.get_order("odd"))
check("errors that are no objects are left out", (error.message, error.errors) == ("odd", []))
error = error_of(lambda: client.get_order("python-0"))
check("a 404 is an error object", (error.status, error.error_code, error.type) == (404, "ORDER_NOT_FOUND", "/errors/ORDER_NOT_FOUND"))
check("it has the id of the request", error.request_id == error.body["request_id"] and error.title and error.instance)
error = error_of(lambda: list(client.orders(limit=0)))
check("a broken rule names its parameter", error.errors[0].parameter == "limit" and error.errors[0].detail)
error = error_of(lambda: client.create_order(new_order("4", -6.12, 106.665)))
check("a full area is refused with the time to wait", (error.status, error.retry_after, error.body["reason"]) == (503, 60, "a check"))

terminal = AvailabilityRequest(service_type="RIDE", pickup=Location(latitude=-6.12, longitude=106.665))
error = error_of(lambda: check_availability.sync(client=client.api, body=terminal))
check("generated functions raise the same error", (error.status, error.body["reason"]) == (503, "a check"))


async def use_asynchronously():
    try:
        try:
            await get_order.asyncio("moved", client=relayed.api)
        except ApiError as error:
            check("asynchronous functions raise the same error", error.status == 301)
        else:
            sys.exit("FOUND   python: a redirect raises no ApiError from asynchronous functions")
        return await create_order.asyncio(client=relayed.api, body=new_order("5"), idempotency_key="key-of-python-5")
    finally:
        await relayed.aclose()


made = asyncio.run(use_asynchronously())
check("asynchronous functions retry in the same way", made.order_id == "python-5")
receiver.shutdown()
client.close()
relayed.close()
