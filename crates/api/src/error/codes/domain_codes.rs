//! Codes about orders, offers, drivers, areas, bindings and plans.

use dispatch::admission::answer::{AREA_DISABLED, AREA_NOT_FOUND, SERVICE_UNAVAILABLE, THRESHOLD_REACHED};

use super::CodeEntry;

pub(super) const DOMAIN_CODES: &[CodeEntry] = &[
    ("ALERT_NOT_FOUND", "No such alert", "No alert has this id."),
    (
        "ALREADY_ASSIGNED",
        "Another driver has the order",
        "Another driver was quicker. The offer is over; wait for the next one.",
    ),
    ("AREA_NOT_FOUND", "No such area", "No area has this id. `dispatchq area list` shows the areas."),
    ("BINDING_DELETED", "The binding is deleted", "The binding was deleted and cannot be changed any more."),
    ("BINDING_EXISTS", "The binding exists", "A binding with this id exists already. Choose another id."),
    (
        "BINDING_NOT_AT_REST",
        "The binding is at work",
        "The change needs a binding that is STOPPED and IDLE. Stop it, and wait until it is.",
    ),
    ("BINDING_NOT_FOUND", "No such binding", "No binding has this id. `dispatchq binding list` shows the bindings."),
    ("BINDING_NOT_RUNNING", "The binding does not run", "Only a binding that runs can do this. Start it first."),
    ("BINDING_PAUSED", "The binding is paused", "The binding is paused. Resume it first."),
    (
        "BINDING_STOPPING",
        "The binding is stopping",
        "The binding stops once its transaction has ended. Send the request again then.",
    ),
    (
        "BINDING_UNRESOLVED",
        "Transactions without a known end",
        "Transactions of the binding are UNRESOLVED. An operator must find out how they ended first.",
    ),
    (
        AREA_DISABLED,
        "The area takes no orders",
        "A dispatcher has disabled the area (maintenance, emergency). Try again later.",
    ),
    (AREA_NOT_FOUND, "Outside all areas", "The pickup lies in no area that is served."),
    (
        THRESHOLD_REACHED,
        "The area is full",
        "As many orders wait in the area as may. Wait as long as `Retry-After` says; `nearby_areas` names areas \
         with room.",
    ),
    (
        SERVICE_UNAVAILABLE,
        "Room cannot be counted",
        "Neither Redis nor Postgres can say whether there is room. Wait as long as `Retry-After` says.",
    ),
    (
        "DRIVER_BUSY",
        "The driver has another order",
        "The driver carries out another order. Complete it, or give it back first.",
    ),
    ("DRIVER_NOT_FOUND", "No such driver", "No driver has this id. `dispatchq driver import` adds drivers."),
    (
        "ILLEGAL_TRANSITION",
        "A forbidden change of status",
        "The change was refused because no order may go from the one status to the other. This is a bug; the log \
         has the details.",
    ),
    (
        "LIFETIME_OVER",
        "The order's lifetime is over",
        "The order's time to find a driver has ended. It is not dispatched again.",
    ),
    ("NOTHING_PAID", "Nothing was paid", "No refund is due: nothing was paid for the order, or its amount is 0."),
    ("NOT_YOUR_OFFER", "An offer of another driver", "The offer was made to another driver."),
    ("NOT_YOUR_ORDER", "An order of another driver", "Another driver carries out the order, or no driver does."),
    (
        "OFFER_DECLINED",
        "The offer was declined",
        "The driver declined the offer before. It cannot be accepted any more.",
    ),
    ("OFFER_EXPIRED", "The offer has expired", "The time to answer the offer is over. Wait for the next one."),
    ("OFFER_GONE", "The offer is over", "The offer was withdrawn or ended in another way. Wait for the next one."),
    ("OFFER_NOT_FOUND", "No such offer", "The order has no offer with this id."),
    ("ORDER_EXISTS", "The order exists", "An order with this id exists already. Read it, or choose another id."),
    ("ORDER_FINISHED", "The order is finished", "The order has ended and does not change any more."),
    ("ORDER_NOT_FOUND", "No such order", "No order has this id, or it is another producer's or driver's."),
    ("OTP_NOT_WANTED", "No OTP is waited for", "The transaction does not wait for an OTP now."),
    ("OTP_OVER", "The time for the OTP is over", "The transaction waits for its OTP no longer."),
    (
        "OTP_STORED",
        "An OTP was handed in",
        "Another OTP was handed in for this transaction before, and will be tried first.",
    ),
    (
        "PAYMENT_EVENT_REUSED",
        "Payment event with another content",
        "An event with this id said something else before. Use a new id for a new event.",
    ),
    ("PLAN_ENDED", "The plan has ended", "The plan was carried out or cancelled before."),
    ("PLAN_EXPIRED", "The plan has expired", "The plan waited too long to be run. Make a new one."),
    (
        "PLAN_NOT_FOUND",
        "No such plan",
        "No plan has this id, or retention has removed it. `dispatchq plan list` shows the plans.",
    ),
    ("PLAN_RUNNING", "The plan is running", "The plan is being carried out."),
    (
        "REFUND_NOT_ASKED",
        "The refund is paid by hand",
        "The payment service was not asked for a refund of this order, so its callback settles nothing.",
    ),
    (
        "REFUND_UNANSWERED",
        "The refund id is not known yet",
        "The payment service has not answered our request yet, so it is not known which refund this is. Send the callback again.",
    ),
    (
        "RESERVATION_IN_PROGRESS",
        "Another driver is taking the order",
        "Another driver is just accepting the order. If that fails the offer holds: press again.",
    ),
    (
        "SERVED_BY_PARTNER",
        "A partner serves the order",
        "The order is served by a partner, so own drivers cannot do this.",
    ),
    ("SERVER_DISABLED", "The server is disabled", "The provider's server is disabled. Enable it first."),
    ("SERVER_EXISTS", "The server exists", "A server with this id exists already. Choose another id."),
    (
        "SERVER_NOT_FOUND",
        "No such server",
        "No provider's server has this id. `dispatchq server list` shows the servers.",
    ),
    (
        "TRANSACTION_NOT_FOUND",
        "No such transaction",
        "The binding has no transaction with this id, or retention has removed it.",
    ),
    ("WRONG_STATE", "Not in this status", "The order's status does not allow this; the message names those that do."),
    (
        "DRIVER_EXISTS",
        "The driver exists",
        "A driver with this id exists already. Change it with `PATCH /api/v1/drivers/{id}`.",
    ),
    (
        "JOB_DEAD",
        "The job is dead",
        "The job was given up. Decide on it with `dispatchq dead requeue` or `dead discard`.",
    ),
    ("JOB_RUNNING", "The job is running", "A worker performs the job now. Wait for its end."),
    (
        "JOB_WAITS_FOR_SLOTS",
        "The job waits for slots",
        "The job runs as soon as it has its slots. It cannot be given another time.",
    ),
    (
        "JOB_WOULD_BE_MOVED_BACK",
        "The reconciler would move the job back",
        "The row, message or schedule of the job asks for an earlier time. The message names the latest time that stays.",
    ),
    (
        "JOB_WOULD_BE_PUT_BACK",
        "The reconciler would put the job back",
        "An order, message or schedule asks for the job. End that instead; the message says how.",
    ),
    ("JOB_NOT_FOUND", "No such job", "No job has this id: it was never enqueued, or has finished."),
    (
        "MESSAGE_NOT_DEAD",
        "The message is not dead",
        "Only messages that were given up are sent again. This one is on its way, or was delivered.",
    ),
    ("MESSAGE_NOT_FOUND", "No such message", "No message has this id, or retention has removed it."),
    (
        "NOT_DEAD",
        "The job is not dead",
        "Only dead jobs are requeued or discarded. Another person may have decided on it.",
    ),
    (
        "NOT_ON_ORDER",
        "You are not on the order",
        "You leave an order that you are not on: that ended by itself after ten minutes, or another person took the order over.",
    ),
    (
        "NOT_YOUR_ALERT",
        "An alert for support",
        "Dispatchers acknowledge alerts about orders that wait for a dispatcher. This one is for support.",
    ),
    (
        "PARTNER_NOT_FOUND",
        "No such partner",
        "No partner of this name is configured. `dispatchq partner list` shows the partners.",
    ),
    ("QUEUE_NOT_FOUND", "No such queue", "No queue has this name. The message lists the queues."),
    ("STAYS_DEAD", "The job stays dead", "Another run of the job could do nothing, or harm. The message says why."),
    (
        "TIME_HAS_PASSED",
        "The time has passed",
        "A job is moved to a time in the future. To run it now, use `in_sec: 0`.",
    ),
];
