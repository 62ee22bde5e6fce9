-- The truth about every order. Timers in Redis are derived from these rows and can be rebuilt from them at any time.

CREATE TABLE orders (
    id               text PRIMARY KEY CHECK (id ~ '^[A-Za-z0-9_-]{1,64}$'),
    service_type     text NOT NULL,
    area_id          text CHECK (octet_length(area_id) BETWEEN 1 AND 64),
    customer_id      text CHECK (octet_length(customer_id) BETWEEN 1 AND 64),
    pickup_lat       double precision NOT NULL CHECK (pickup_lat BETWEEN -90 AND 90),
    pickup_lng       double precision NOT NULL CHECK (pickup_lng BETWEEN -180 AND 180),
    amount_minor     bigint CHECK (amount_minor >= 0),
    currency         text CHECK (currency ~ '^[A-Z]{3}$'),
    payment_status   text NOT NULL DEFAULT 'UNPAID' CHECK (payment_status ~ '^[A-Z_]{1,32}$'),
    status           text NOT NULL CHECK (status IN (
        'PENDING_JOB_ID', 'ASSIGNED', 'DISPATCHING', 'PENDING', 'DRIVER_ASSIGNED', 'PICKED_UP', 'COMPLETED',
        'COMPENSATING', 'CANCELLED_BY_SYSTEM', 'CANCELLED_BY_SYSTEM_AFTER_PAYMENT', 'REFUND_PENDING', 'REFUNDED',
        'CANCELLED_BY_USER', 'CANCELLED_BY_DRIVER')),
    driver_id        text,
    attempt_no       integer NOT NULL DEFAULT 0 CHECK (attempt_no >= 0),
    round            integer NOT NULL DEFAULT 1 CHECK (round >= 1),
    attempt_deadline timestamptz(3),
    next_attempt_at  timestamptz(3),
    lifetime_deadline timestamptz(3) NOT NULL,
    lifetime_waived  boolean NOT NULL DEFAULT false,
    held_for_review  boolean NOT NULL DEFAULT false,
    held_reason      text,
    version          bigint NOT NULL DEFAULT 0,
    created_at       timestamptz(3) NOT NULL,
    updated_at       timestamptz(3) NOT NULL,
    closed_at        timestamptz(3),
    CHECK (status NOT IN ('DRIVER_ASSIGNED', 'PICKED_UP', 'COMPLETED') OR driver_id IS NOT NULL),
    CHECK (attempt_deadline IS NULL OR next_attempt_at IS NULL),
    CHECK (held_for_review = (held_reason IS NOT NULL)),
    CHECK ((closed_at IS NOT NULL) = (status IN (
        'COMPLETED', 'CANCELLED_BY_SYSTEM', 'CANCELLED_BY_SYSTEM_AFTER_PAYMENT', 'REFUND_PENDING', 'REFUNDED',
        'CANCELLED_BY_USER', 'CANCELLED_BY_DRIVER')))
) WITH (fillfactor = 70);  -- room for HOT updates: no index names a column that changes at every step

COMMENT ON COLUMN orders.attempt_no IS 'offers made so far; the running attempt while attempt_deadline is set';
COMMENT ON COLUMN orders.round IS 'searches begun anew: a driver whose offer lapsed is asked again in the next round';
COMMENT ON COLUMN orders.attempt_deadline IS 'end of the running attempt; null when none runs';
COMMENT ON COLUMN orders.next_attempt_at IS 'when the next attempt is to start; null while one runs or none is wanted';
COMMENT ON COLUMN orders.lifetime_waived IS 'PENDING order of a service type whose lifetime does not end it';
COMMENT ON COLUMN orders.held_for_review IS 'a person must decide: no timer runs';
COMMENT ON COLUMN orders.version IS 'raised by every change; each change names the version it was decided on';

CREATE INDEX orders_open ON orders (id) WHERE closed_at IS NULL;
CREATE INDEX orders_by_age ON orders (created_at, id);
-- One active order per driver, whatever races.
CREATE UNIQUE INDEX orders_one_active_per_driver ON orders (driver_id) WHERE status IN ('DRIVER_ASSIGNED', 'PICKED_UP');

CREATE TABLE offers (
    id           uuid PRIMARY KEY,
    order_id     text NOT NULL REFERENCES orders (id),
    attempt_no   integer NOT NULL,
    round        integer NOT NULL,
    driver_id    text NOT NULL,
    state        text NOT NULL DEFAULT 'offered'
                 CHECK (state IN ('offered', 'accepted', 'declined', 'expired', 'superseded', 'withdrawn')),
    distance_m   double precision,
    reason       text,
    offered_at   timestamptz(3) NOT NULL,
    expires_at   timestamptz(3) NOT NULL,
    responded_at timestamptz(3),
    UNIQUE (order_id, attempt_no, driver_id)
);
CREATE UNIQUE INDEX offers_one_accepted_per_order ON offers (order_id) WHERE state = 'accepted';
CREATE UNIQUE INDEX offers_one_live_per_driver ON offers (driver_id) WHERE state = 'offered';

-- The history. Partitioned by time so that retention is dropping a table; no foreign key, for the same reason.
CREATE SEQUENCE order_events_seq;
CREATE TABLE order_events (
    seq         bigint NOT NULL DEFAULT nextval('order_events_seq'),
    order_id    text NOT NULL,
    from_status text,
    to_status   text NOT NULL,
    reason      text NOT NULL,
    actor       text NOT NULL,
    attempt_no  integer,
    detail      text,
    at          timestamptz(3) NOT NULL,
    PRIMARY KEY (seq, at)
) PARTITION BY RANGE (at);
COMMENT ON COLUMN order_events.seq IS 'inserted after the order''s row is updated, so that it orders the events of one order';
CREATE INDEX order_events_by_order ON order_events (order_id, seq);
-- Nothing is refused for want of a partition.
CREATE TABLE order_events_default PARTITION OF order_events DEFAULT;

-- Makes the daily partitions from today to `days` ahead; returns how many are new. A day that already has events in the
-- default partition is left there.
CREATE FUNCTION dispatchq_make_event_partitions(days integer) RETURNS integer
    LANGUAGE plpgsql AS $$
DECLARE
    first_day date := (dispatchq_now() AT TIME ZONE 'UTC')::date;
    day date;
    made integer := 0;
BEGIN
    -- one at a time: two replicas start together
    PERFORM pg_advisory_xact_lock(hashtext('dispatchq_make_event_partitions'));
    FOR i IN 0..days LOOP
        day := first_day + i;
        CONTINUE WHEN to_regclass('order_events_' || to_char(day, 'YYYYMMDD')) IS NOT NULL;
        CONTINUE WHEN EXISTS (
            SELECT 1 FROM order_events_default
            WHERE at >= day::timestamp AT TIME ZONE 'UTC' AND at < (day + 1)::timestamp AT TIME ZONE 'UTC');
        EXECUTE format('CREATE TABLE %I PARTITION OF order_events FOR VALUES FROM (%L) TO (%L)',
            'order_events_' || to_char(day, 'YYYYMMDD'),
            day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC');
        made := made + 1;
    END LOOP;
    RETURN made;
END $$;
