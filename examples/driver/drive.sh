#!/bin/sh
# Serves one order as a driver, with curl and the driver's key: goes on duty, waits for an offer, accepts it, reports the
# pickup and the completion, and goes off duty. Variables: DRIVER_ID, DRIVER_KEY, API (default http://127.0.0.1:8080).
set -eu
: "${API:=http://127.0.0.1:8080}" "${DRIVER_ID:?the id of a driver}" "${DRIVER_KEY:?the key of this driver}"
driver=$API/api/v1/drivers/$DRIVER_ID

# Sends a request as the driver and prints the answer, also of a refusal: call URL [OPTION OF CURL ...]
call() {
    curl -sS --fail-with-body "$@" -H "Authorization: Bearer $DRIVER_KEY" -H 'Content-Type: application/json'
}

# Prints a member of the first object that has it: member NAME ANSWER
member() {
    printf '%s\n' "$2" | tr '{' '\n' | sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" | head -n 1
}

# Reports a step of the order and prints the new state: step NAME
step() {
    answer=$(call "$API/api/v1/orders/$order/$1" -d "{\"driver_id\": \"$DRIVER_ID\", \"offer_id\": \"$offer\"}") || {
        printf '%s: %s\n' "$1" "$answer" >&2
        return 1
    }
    printf '%s %s\n' "$order" "$(member status "$answer")"
}

# The driver stands at the pickup of the samples. An app sends the position of the phone.
call "$driver/location" -X PUT -d '{"latitude": -6.2088, "longitude": 106.8456}' >/dev/null
call "$driver/availability" -X PUT -d '{"available": true}' >/dev/null
echo "$DRIVER_ID is on duty"

while :; do
    offers=$(call "$driver/offers?wait_sec=50")
    offer=$(member offer_id "$offers")
    order=$(member order_id "$offers")
    # Without an offer the request is answered after 50 s. An accept fails if another driver was faster.
    if [ -n "$offer" ] && step accept; then break; fi
    sleep 1
done
step pickup
step complete

call "$driver/availability" -X PUT -d '{"available": false}' >/dev/null
echo "$DRIVER_ID is off duty"
