"""Prints webhooks as JSON, each with the answer of a receiver: signed, forged, late and malformed ones.

Each has `name`, `body`, `headers`, `secrets`, `now` and `accepted`.
"""

import base64
import hashlib
import hmac
import json
import secrets

NOW = 1_767_945_641
SECRET, OTHER = (b"whsec_" + base64.b64encode(secrets.token_bytes(24)) for _ in range(2))
BODY = json.dumps(
    {
        "id": "019ba1c0-0000-7000-8000-000000000002",
        "type": "order.assigned",
        "timestamp": "2026-01-09T08:00:41.518Z",
        "version": 1,
        "data": {"seq": 4711, "order_id": "ORD-1", "reason": "Đã nhận"},
        "added_later": True,
    },
    ensure_ascii=False,
)


def sign(secret, sent, body, message_id="msg-1"):
    key = base64.b64decode(secret.removeprefix(b"whsec_"))
    return "v1," + base64.b64encode(hmac.digest(key, f"{message_id}.{sent}.{body}".encode(), hashlib.sha256)).decode()


def webhook(name, accepted, *, body=BODY, sent=NOW, signature=None, headers=None, trusted=(SECRET,)):
    given = {"webhook-id": "msg-1", "webhook-timestamp": str(sent), "webhook-signature": signature or sign(SECRET, sent, body)}
    given |= headers or {}
    return {
        "name": name,
        "body": body,
        "headers": {key: value for key, value in given.items() if value is not None},
        "secrets": [secret.decode() for secret in trusted],
        "now": NOW,
        "accepted": accepted,
    }


good = sign(SECRET, NOW, BODY)
wrong = "v1," + base64.b64encode(bytes(32)).decode()
# Not the last character: two of its bits are padding.
flipped = good[:3] + ("A" if good[3] != "A" else "B") + good[4:]
cases = [
    webhook("signed", True),
    webhook("signed by the previous secret", True, trusted=(OTHER, SECRET)),
    webhook("with two signatures", True, signature=f"{sign(OTHER, NOW, BODY)} {good}"),
    webhook("with a signature of a later version", True, signature=f"v2,AAAA {good}"),
    webhook("with eight signatures", True, signature=" ".join([wrong] * 7 + [good])),
    webhook("with a ninth signature", False, signature=" ".join([wrong] * 8 + [good])),
    webhook("with 1,000 empty signatures", False, signature=" ".join(["v1,"] * 1000)),
    webhook("with a signature after many of other lengths and versions", True, signature=" ".join([good[:15], "v2,AAAA"] * 9 + [good])),
    webhook("300 s old", True, sent=NOW - 300),
    webhook("300 s ahead", True, sent=NOW + 300),
    webhook("301 s old", False, sent=NOW - 301),
    webhook("301 s ahead", False, sent=NOW + 301),
    webhook("signed by an unknown secret", False, signature=sign(OTHER, NOW, BODY)),
    webhook("with a wrong signature", False, signature=flipped),
    webhook("with a shortened signature", False, signature=good[:20]),
    webhook("with another version of the signature only", False, signature="v2" + good[2:]),
    webhook("with an empty signature", False, signature="v1,"),
    webhook("with another body", False, body=BODY.replace("4711", "4712"), signature=good),
    webhook("with another id", False, headers={"webhook-id": "msg-2"}),
    webhook("with another timestamp", False, headers={"webhook-timestamp": str(NOW - 1)}),
    webhook("with a timestamp that is no number", False, headers={"webhook-timestamp": f"+{NOW}"}),
    webhook("with a huge timestamp", False, sent="9" * 40),
    webhook("without an id", False, headers={"webhook-id": None}),
    webhook("without a timestamp", False, headers={"webhook-timestamp": None}),
    webhook("without a signature", False, headers={"webhook-signature": None}),
    webhook("signed, but not JSON", False, body="no event"),
    webhook("signed, but no event", False, body="[1]"),
]
print(json.dumps(cases))
