-- Orders served by a partner: bookings, callbacks, payments, and what operators set at run time.

ALTER TABLE orders
    ADD COLUMN partner      text CHECK (partner ~ '^[a-z0-9_]{1,32}$'),
    ADD COLUMN job_id       text CHECK (octet_length(job_id) BETWEEN 1 AND 128),
    ADD COLUMN poll_no      integer NOT NULL DEFAULT 0 CHECK (poll_no >= 0),
    ADD COLUMN next_poll_at timestamptz(3),
    ADD CHECK (partner IS NOT NULL OR status NOT IN ('PENDING_JOB_ID', 'ASSIGNED')),
    ADD CHECK (partner IS NOT NULL OR next_poll_at IS NULL);
COMMENT ON COLUMN orders.partner IS 'who finds the driver; null for the own fleet';
COMMENT ON COLUMN orders.job_id IS 'the partner''s job id of the running attempt';
COMMENT ON COLUMN orders.poll_no IS 'times the partner was asked about the running attempt''s booking';
COMMENT ON COLUMN orders.next_poll_at IS 'when the partner is asked again; null when nothing is asked';
CREATE INDEX orders_by_job_id ON orders (job_id) WHERE job_id IS NOT NULL;
-- A partner's drivers are not ours to count.
DROP INDEX orders_one_active_per_driver;
CREATE UNIQUE INDEX orders_one_active_per_driver ON orders (driver_id)
    WHERE status IN ('DRIVER_ASSIGNED', 'PICKED_UP') AND partner IS NULL;

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
    closed_at   timestamptz(3),
    PRIMARY KEY (order_id, attempt_no),
    CHECK ((next_try_at IS NOT NULL) = (state IN ('intent', 'unknown', 'cancel_wanted'))),
    CHECK ((closed_at IS NOT NULL) = (state IN ('cancelled', 'refused', 'completed')))
) WITH (fillfactor = 70);
COMMENT ON TABLE bookings IS 'what we asked of a partner: one row for each attempt, written before the partner is asked';
COMMENT ON COLUMN bookings.state IS 'intent: to be asked; unknown: asked, answer lost; booked; cancel_wanted: no longer wanted, the partner has yet to confirm; refused: the partner will not or no longer knows it';
COMMENT ON COLUMN bookings.next_try_at IS 'when the partner is to be asked (again) to book or to cancel';
CREATE UNIQUE INDEX bookings_by_partner_id ON bookings (partner, booking_id) WHERE booking_id IS NOT NULL;
-- Its predicate names no column that changes from try to try.
CREATE INDEX bookings_waiting ON bookings (order_id, attempt_no) WHERE state IN ('intent', 'unknown', 'cancel_wanted');

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
COMMENT ON TABLE inbox IS 'callbacks of partners, stored before they are acted on; an event that comes twice is one row';
COMMENT ON COLUMN inbox.state IS 'unmatched: of a booking we do not know yet; looked at again when we do';
CREATE INDEX inbox_by_order ON inbox (order_id) WHERE order_id IS NOT NULL;
CREATE INDEX inbox_pending ON inbox (id) WHERE state = 'pending';
CREATE INDEX inbox_unmatched ON inbox (partner, booking_id) WHERE state = 'unmatched';
CREATE INDEX inbox_by_age ON inbox USING brin (received_at);

CREATE TABLE payment_events (
    order_id       text NOT NULL REFERENCES orders (id),
    event_id       text NOT NULL CHECK (octet_length(event_id) BETWEEN 1 AND 128),
    payment_status text NOT NULL,
    received_at    timestamptz(3) NOT NULL,
    PRIMARY KEY (order_id, event_id)
);
COMMENT ON TABLE payment_events IS 'what the producer said of the money; an event that comes twice is one row';

CREATE TABLE partner_settings (
    partner         text PRIMARY KEY,
    polling_percent smallint CHECK (polling_percent BETWEEN 0 AND 100),
    changed_by      text NOT NULL,
    changed_at      timestamptz(3) NOT NULL DEFAULT dispatchq_now()
);
COMMENT ON COLUMN partner_settings.polling_percent IS 'share of orders whose job id is asked for, over what is configured';

CREATE TABLE partner_alerts (
    partner    text PRIMARY KEY,
    alerted_at timestamptz(3) NOT NULL
);
COMMENT ON TABLE partner_alerts IS 'when support was last told that a partner refuses our key: once an hour, not once an order';

CREATE VIEW audit_bookings AS
    SELECT order_id, attempt_no, booking_id, job_id, state, created_at, closed_at
    FROM bookings;

ALTER TABLE service_types ADD COLUMN partner text;

CREATE OR REPLACE FUNCTION dispatchq_create_order(
    order_id text,
    service_type text,
    pickup_lat double precision,
    pickup_lng double precision,
    payment_status text DEFAULT 'UNPAID',
    amount_minor bigint DEFAULT NULL,
    currency text DEFAULT NULL,
    area_id text DEFAULT NULL,
    customer_id text DEFAULT NULL,
    actor text DEFAULT 'sql'
) RETURNS boolean
    LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    now timestamptz := dispatchq_now();
    life interval;
    served_by text;
    first_status text;
BEGIN
    SELECT s.lifetime, s.partner INTO life, served_by
    FROM service_types s WHERE s.service_type = dispatchq_create_order.service_type;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'unknown service type %', dispatchq_create_order.service_type
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'add it under [service_types] in config.toml, then run: dispatchq migrate';
    END IF;
    first_status := CASE WHEN served_by IS NULL THEN 'DISPATCHING' ELSE 'PENDING_JOB_ID' END;
    INSERT INTO orders (id, service_type, area_id, customer_id, pickup_lat, pickup_lng, amount_minor, currency,
                        payment_status, status, partner, next_attempt_at, lifetime_deadline, created_at, updated_at)
    VALUES (dispatchq_create_order.order_id, dispatchq_create_order.service_type, dispatchq_create_order.area_id,
            dispatchq_create_order.customer_id, dispatchq_create_order.pickup_lat, dispatchq_create_order.pickup_lng,
            dispatchq_create_order.amount_minor, dispatchq_create_order.currency,
            dispatchq_create_order.payment_status, first_status, served_by, now, now + life, now, now)
    ON CONFLICT (id) DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO order_events (order_id, from_status, to_status, reason, actor, at)
    VALUES (dispatchq_create_order.order_id, NULL, first_status, 'ORDER_CREATED', dispatchq_create_order.actor, now);
    RETURN true;
END $$;
