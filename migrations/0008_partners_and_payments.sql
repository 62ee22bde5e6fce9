-- Orders served by partners, with their bookings and callbacks; payments, and refunds by a payment service.

CREATE TABLE bookings (
    order_id    text NOT NULL REFERENCES orders (id),
    attempt_no  integer NOT NULL CHECK (attempt_no >= 1),
    partner     text NOT NULL,
    state       text NOT NULL DEFAULT 'intent' CHECK (state IN (
        'intent', 'unknown', 'booked', 'cancel_wanted', 'cancelled', 'refused', 'completed')),
    booking_id  text CHECK (octet_length(booking_id) BETWEEN 1 AND 128),
    job_id      text CHECK (octet_length(job_id) BETWEEN 1 AND 128),
    tries       integer NOT NULL DEFAULT 0,
    next_try_at timestamptz(3),
    last_error  text,
    created_at  timestamptz(3) NOT NULL,
    booked_at   timestamptz(3),
    assigned_at timestamptz(3),
    closed_at   timestamptz(3),
    places      jsonb,
    to_tell     boolean NOT NULL GENERATED ALWAYS AS (state = 'booked' AND next_try_at IS NOT NULL) STORED,
    PRIMARY KEY (order_id, attempt_no),
    CHECK (next_try_at IS NOT NULL OR state NOT IN ('intent', 'unknown', 'cancel_wanted')),
    CHECK (next_try_at IS NULL OR state IN ('intent', 'unknown', 'cancel_wanted', 'booked')),
    CHECK ((closed_at IS NOT NULL) = (state IN ('cancelled', 'refused', 'completed')))
) WITH (fillfactor = 70);
COMMENT ON TABLE bookings IS 'bookings at partners: one row for each attempt, written before the request';
COMMENT ON COLUMN bookings.partner IS 'the booked partner; it does not change';
COMMENT ON COLUMN bookings.state IS 'intent: not yet requested; unknown: requested, the answer was lost; booked; cancel_wanted: no longer wanted, the partner has not confirmed; refused: the partner refused it or no longer knows it';
COMMENT ON COLUMN bookings.next_try_at IS 'time of the next request to book, to cancel, or to send changed contents';
COMMENT ON COLUMN bookings.places IS 'places of the booking request, if they were changed before it was answered; a repeated request has the same places';
COMMENT ON COLUMN bookings.assigned_at IS 'when the order became ASSIGNED by this booking; null: no job id arrived, or it arrived too late';
CREATE UNIQUE INDEX bookings_by_partner_id ON bookings (partner, booking_id) WHERE booking_id IS NOT NULL;
-- For job ids of earlier attempts, which only the bookings have.
CREATE INDEX bookings_by_job_id ON bookings (job_id) WHERE job_id IS NOT NULL;
-- Its predicate has no column that changes from try to try.
CREATE INDEX bookings_waiting ON bookings (order_id, attempt_no) WHERE state IN ('intent', 'unknown', 'cancel_wanted');
-- Bookings whose changed contents are still to be sent. The column changes at no try, unlike its parts.
CREATE INDEX bookings_to_tell ON bookings (order_id, attempt_no) WHERE to_tell;

CREATE TABLE inbox (
    id           bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    partner      text NOT NULL,
    event_id     text NOT NULL,
    order_id     text,
    booking_id   text,
    body         jsonb NOT NULL,
    state        text NOT NULL CHECK (state IN ('pending', 'processed', 'ignored', 'unmatched')),
    result       text,
    received_at  timestamptz(3) NOT NULL,
    processed_at timestamptz(3),
    UNIQUE (partner, event_id)
);
COMMENT ON TABLE inbox IS 'callbacks of partners, stored before they are processed; a repeated event is stored once';
COMMENT ON COLUMN inbox.state IS 'unmatched: its booking is not known yet; it is processed when the booking is known';
CREATE INDEX inbox_by_order ON inbox (order_id) WHERE order_id IS NOT NULL;
CREATE INDEX inbox_pending ON inbox (id) WHERE state = 'pending';
CREATE INDEX inbox_unmatched ON inbox (partner, booking_id) WHERE state = 'unmatched';
CREATE INDEX inbox_unmatched_by_age ON inbox (received_at) WHERE state = 'unmatched';

CREATE TABLE partner_settings (
    partner         text PRIMARY KEY,
    polling_percent smallint CHECK (polling_percent BETWEEN 0 AND 100),
    changed_by      text NOT NULL,
    changed_at      timestamptz(3) NOT NULL DEFAULT dispatchq_now()
);
COMMENT ON COLUMN partner_settings.polling_percent IS 'share of orders for whose job id the partner is polled; overrides the configuration';

CREATE TABLE partner_alerts (
    partner    text PRIMARY KEY,
    alerted_at timestamptz(3) NOT NULL
);
COMMENT ON TABLE partner_alerts IS 'when support was last notified that a partner refuses the configured key; at most once an hour';

CREATE TABLE payment_events (
    order_id       text NOT NULL REFERENCES orders (id),
    event_id       text NOT NULL CHECK (octet_length(event_id) BETWEEN 1 AND 128),
    payment_status text NOT NULL,
    received_at    timestamptz(3) NOT NULL,
    PRIMARY KEY (order_id, event_id)
);
COMMENT ON TABLE payment_events IS 'payment reports of the producer; a repeated event is stored once';

-- Requests to a payment service: one row for each order whose refund started while a service was configured. The row is written
-- in the transaction that starts the refund. People pay a refund without a row by hand; they may also settle a refund that the
-- service pays.
CREATE TABLE refunds (
    order_id         text PRIMARY KEY REFERENCES orders (id),
    amount_minor     bigint NOT NULL CHECK (amount_minor >= 0),
    currency         text NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    state            text NOT NULL DEFAULT 'asking' CHECK (state IN ('asking', 'accepted', 'refunded', 'refused')),
    refund_id        text CHECK (octet_length(refund_id) BETWEEN 1 AND 128),
    other_refund_ids text[] NOT NULL DEFAULT '{}',
    service_paid     boolean NOT NULL DEFAULT false,
    service_failed   boolean NOT NULL DEFAULT false,
    tries            integer NOT NULL DEFAULT 0 CHECK (tries >= 0),
    next_try_at      timestamptz(3),
    last_error       text,
    created_at       timestamptz(3) NOT NULL,
    closed_at        timestamptz(3),
    CHECK ((next_try_at IS NOT NULL) = (state IN ('asking', 'accepted'))),
    CHECK ((closed_at IS NOT NULL) = (state IN ('refunded', 'refused')))
);
COMMENT ON TABLE refunds IS 'requests to a payment service; no row: the refund is paid by hand';
COMMENT ON COLUMN refunds.state IS 'asking: not yet accepted; accepted: the service processes it and is asked again, in case its callback is lost; refused: a person must pay';
COMMENT ON COLUMN refunds.refund_id IS 'the service''s own id';
-- All of them are stored, so that callbacks that alternate between two ids are recognized as repeats.
COMMENT ON COLUMN refunds.other_refund_ids IS 'refund ids of callbacks that differ from the id that the service returned';
COMMENT ON COLUMN refunds.service_paid IS 'the service reported that it paid this refund; if it is false in the state refunded, a person settled the refund';
COMMENT ON COLUMN refunds.service_failed IS 'the service reported that this refund failed';
COMMENT ON COLUMN refunds.next_try_at IS 'time of the next request to the service';
-- Its predicate has no column that changes from try to try.
CREATE INDEX refunds_waiting ON refunds (order_id) WHERE state IN ('asking', 'accepted');
