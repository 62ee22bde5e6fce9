"""A shop: creates an order, receives its webhooks, and prints its state changes until it is completed or cancelled."""

import os
import queue
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from dispatchq import Client, NewOrder, Place, WebhookError, verify_webhook

received = queue.Queue()


def setting(name, default=None):
    """Returns an environment variable."""
    return os.environ.get(name, default) or sys.exit(f"{name} is not set: see examples/README.md")


def register_endpoint():
    """Returns the secret of the webhooks. The server's config.toml declares their address, so no request is needed."""
    return setting("SHOP_SECRET")


class Receiver(BaseHTTPRequestHandler):
    """Answers 401 to a webhook without a valid signature."""

    secret = ""

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        try:
            event = verify_webhook(body, self.headers, self.secret)
        except WebhookError as error:
            print(f"refused: {error}", file=sys.stderr)
            self.send_response(401)
        else:
            # A real shop stores the event before it answers.
            received.put(event)
            self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


def print_steps(order_id):
    """Prints the steps of an order until it ends. Skips a step that arrives after a later one."""
    last_seq = 0
    while True:
        event = received.get()
        step = event.data
        if step["order_id"] != order_id or step["seq"] <= last_seq:
            continue
        last_seq = step["seq"]
        print(event.type, step["status"], flush=True)
        if event.type in ("order.completed", "order.cancelled"):
            return


def main():
    Receiver.secret = register_endpoint()
    server = HTTPServer(("127.0.0.1", int(setting("SHOP_PORT", "7070"))), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with Client(setting("SHOP_URL", "http://127.0.0.1:8080"), setting("SHOP_KEY")) as client:
        pickup = Place(latitude=-6.2088, longitude=106.8456, address="Jalan Thamrin 9")
        order = client.create_order(NewOrder(service_type="RIDE", pickup=pickup))
        print("created", order.order_id, flush=True)
        print_steps(order.order_id)
    # Waits until the last webhook is answered.
    server.shutdown()


if __name__ == "__main__":
    main()
