"""Relay between a client and the server: relay.py SERVER REPORT. It prints its address.

It treats the tries of each order by number. The first reaches the server, but the connection ends within its answer. The
second is answered with 503 and `Retry-After`, the third with 409 because the first still runs. Later tries and all other
requests pass, except those for the paths in ANSWERS. It appends a line to REPORT for each try of an order: order, number, key, seconds since the previous try,
hash of the body.
"""

import hashlib
import http.client
import json
import socket
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

server, report = urllib.parse.urlsplit(sys.argv[1]), open(sys.argv[2], "a", buffering=1, encoding="utf-8")
tries, lock = {}, threading.Lock()

REFUSALS = {
    2: (503, {"retry-after": "2"}, {"error_code": "UNAVAILABLE", "message": "refused by the relay"}),
    3: (409, {}, {"error_code": "IDEMPOTENCY_KEY_IN_USE", "message": "refused by the relay"}),
}

ANSWERS = {
    # A client that follows it gets a list and no error.
    "/api/v1/orders/moved": (301, {"location": "/api/v1/orders"}, b""),
    "/api/v1/orders/odd": (400, {"content-type": "application/json"}, b'{"message": "odd", "errors": ["no object", 1]}'),
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path in ANSWERS:
            self.answer(*ANSWERS[self.path])
            return
        number = self.count_try(body) if (self.command, self.path) == ("POST", "/api/v1/orders") else None
        if number in REFUSALS:
            status, headers, problem = REFUSALS[number]
            self.answer(status, headers | {"content-type": "application/problem+json"}, json.dumps(problem).encode())
            return
        upstream = http.client.HTTPConnection(server.netloc, timeout=90)
        upstream.request(self.command, self.path, body, {k: v for k, v in self.headers.items() if k.lower() != "host"})
        answer = upstream.getresponse()
        content = answer.read()
        upstream.close()
        if number == 1:
            self.answer(answer.status, {"content-type": "application/json"}, content, len(content) // 2)
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        kept = ("content-type", "retry-after", "idempotency-replayed", "x-request-id")
        self.answer(answer.status, {k: v for k, v in answer.getheaders() if k.lower() in kept}, content)

    def count_try(self, body):
        order, now = json.loads(body)["order_id"], time.monotonic()
        with lock:
            number, previous = tries.get(order, (0, now))
            tries[order] = (number + 1, now)
            key, digest = self.headers.get("idempotency-key", "-"), hashlib.sha256(body).hexdigest()
            report.write(f"{order} {number + 1} {key} {now - previous:.3f} {digest}\n")
        return number + 1

    def answer(self, status, headers, content, sent=None):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[:sent])

    do_GET = do_POST = handle_any


relay = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
relay.daemon_threads = True
print(f"http://127.0.0.1:{relay.server_address[1]}", flush=True)
relay.serve_forever()
