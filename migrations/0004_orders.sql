-- Orders, offers and rankings. The timers in Redis are derived from these rows and can be rebuilt at any time.

-- Configured values of each service type, for producers that create orders in SQL. `dispatchq migrate`, `serve` and `work`
-- write them.
CREATE TABLE service_types (
    service_type   text PRIMARY KEY,
    lifetime       interval NOT NULL CHECK (lifetime > interval '0'),
    partner        text,
    lead           interval NOT NULL DEFAULT interval '20 minutes' CHECK (lead >= interval '0'),
    warn_before    interval NOT NULL DEFAULT interval '10 minutes' CHECK (warn_before >= interval '0'),
    max_days_ahead integer NOT NULL DEFAULT 30 CHECK (max_days_ahead BETWEEN 0 AND 365),
    updated_at     timestamptz(3) NOT NULL DEFAULT dispatchq_now()
);
COMMENT ON COLUMN service_types.partner IS 'partner of the first attempt; null: your own fleet';
COMMENT ON COLUMN service_types.lead IS 'time between the start of dispatch and the pickup of a scheduled order';
COMMENT ON COLUMN service_types.warn_before IS 'time between the warning that a scheduled order has no driver and its pickup; zero: no warning';

CREATE TABLE orders (
    id                text PRIMARY KEY CHECK (id ~ '^[A-Za-z0-9_-]{1,64}$'),
    service_type      text NOT NULL,
    area_id           text CHECK (octet_length(area_id) BETWEEN 1 AND 64),
    owner             text CHECK (octet_length(owner) BETWEEN 1 AND 256),
    customer_id       text CHECK (octet_length(customer_id) BETWEEN 1 AND 64),
    language          text CHECK (language ~ '^[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8})*$' AND octet_length(language) <= 35),
    channel           text,
    loyalty_level     text,
    admission         text,
    has_details       boolean NOT NULL DEFAULT false,
    pickup_lat        double precision NOT NULL CHECK (pickup_lat BETWEEN -90 AND 90),
    pickup_lng        double precision NOT NULL CHECK (pickup_lng BETWEEN -180 AND 180),
    amount_minor      bigint CHECK (amount_minor >= 0),
    currency          text CHECK (currency ~ '^[A-Z]{3}$'),
    payment_status    text NOT NULL DEFAULT 'UNPAID' CHECK (payment_status ~ '^[A-Z_]{1,32}$'),
    paid_at           timestamptz(3),
    status            text NOT NULL CHECK (status IN (
        'SCHEDULED', 'PENDING_JOB_ID', 'ASSIGNED', 'DISPATCHING', 'PENDING', 'DRIVER_ASSIGNED', 'PICKED_UP',
        'COMPLETED', 'COMPENSATING', 'CANCELLED_BY_SYSTEM', 'CANCELLED_BY_SYSTEM_AFTER_PAYMENT', 'REFUND_PENDING', 'REFUNDED',
        'CANCELLED_BY_USER', 'CANCELLED_BY_DRIVER')),
    partner           text CHECK (partner ~ '^[a-z0-9_]{1,32}$'),
    job_id            text CHECK (octet_length(job_id) BETWEEN 1 AND 128),
    poll_no           integer NOT NULL DEFAULT 0 CHECK (poll_no >= 0),
    next_poll_at      timestamptz(3),
    job_id_asks       integer NOT NULL DEFAULT 0 CHECK (job_id_asks >= 0),
    driver_id         text,
    former_drivers    text[] NOT NULL DEFAULT '{}',
    attempt_no        integer NOT NULL DEFAULT 0 CHECK (attempt_no >= 0),
    round             integer NOT NULL DEFAULT 1 CHECK (round >= 1),
    attempt_deadline  timestamptz(3),
    wave_no           integer NOT NULL DEFAULT 1 CHECK (wave_no >= 1),
    next_wave_at      timestamptz(3),
    next_attempt_at   timestamptz(3),
    lifetime_deadline timestamptz(3) NOT NULL,
    pickup_at         timestamptz(3),
    starts_at         timestamptz(3),
    warn_at           timestamptz(3),
    lifetime_waived   boolean NOT NULL DEFAULT false,
    trip_deadline     timestamptz(3),
    held_for_review   boolean NOT NULL DEFAULT false,
    held_reason       text,
    hold_cause        jsonb,
    version           bigint NOT NULL DEFAULT 0,
    -- The session that creates the order sets dispatchq.write_id.
    write_id          uuid DEFAULT nullif(current_setting('dispatchq.write_id', true), '')::uuid,
    creation_id       uuid DEFAULT nullif(current_setting('dispatchq.write_id', true), '')::uuid,
    created_at        timestamptz(3) NOT NULL,
    updated_at        timestamptz(3) NOT NULL,
    closed_at         timestamptz(3),
    -- Parts of the status for indexes. A step that changes none of them, such as a pickup, writes no index entry.
    on_trip           boolean NOT NULL GENERATED ALWAYS AS (status IN ('DRIVER_ASSIGNED', 'PICKED_UP')) STORED,
    searching         boolean NOT NULL GENERATED ALWAYS AS
                      (status IN ('PENDING_JOB_ID', 'ASSIGNED', 'DISPATCHING', 'PENDING')) STORED,
    searching_fleet   boolean NOT NULL GENERATED ALWAYS AS (status = 'DISPATCHING' AND partner IS NULL) STORED,
    needs_decision    boolean NOT NULL GENERATED ALWAYS AS (status = 'PENDING' OR held_for_review) STORED,
    owes_refund       boolean NOT NULL GENERATED ALWAYS AS (
        status IN ('CANCELLED_BY_SYSTEM_AFTER_PAYMENT', 'REFUND_PENDING')
        OR (status IN ('CANCELLED_BY_USER', 'CANCELLED_BY_DRIVER') AND paid_at IS NOT NULL
            AND amount_minor IS DISTINCT FROM 0)) STORED,
    closed_status     text GENERATED ALWAYS AS (CASE WHEN closed_at IS NOT NULL THEN status END) STORED,
    CHECK (status NOT IN ('DRIVER_ASSIGNED', 'PICKED_UP', 'COMPLETED') OR driver_id IS NOT NULL),
    CHECK (attempt_deadline IS NULL OR next_attempt_at IS NULL),
    CHECK (next_wave_at IS NULL OR attempt_deadline IS NOT NULL),
    CHECK (starts_at IS NULL OR pickup_at IS NOT NULL),
    CHECK (status <> 'SCHEDULED' OR (starts_at IS NOT NULL AND attempt_no = 0)),
    CHECK (held_for_review = (held_reason IS NOT NULL)),
    CHECK (partner IS NOT NULL OR status NOT IN ('PENDING_JOB_ID', 'ASSIGNED')),
    CHECK (partner IS NOT NULL OR next_poll_at IS NULL),
    CHECK ((closed_at IS NOT NULL) = (status IN (
        'COMPLETED', 'CANCELLED_BY_SYSTEM', 'CANCELLED_BY_SYSTEM_AFTER_PAYMENT', 'REFUND_PENDING', 'REFUNDED',
        'CANCELLED_BY_USER', 'CANCELLED_BY_DRIVER')))
) WITH (fillfactor = 70);  -- room for HOT updates: no index has `status` or another column that changes at every step

COMMENT ON COLUMN orders.owner IS 'name of the producer that owns the order; other producers cannot see it; null: only staff see it';
COMMENT ON COLUMN orders.language IS 'BCP 47 tag, for messages to the customer; null: texts.customer_language of the configuration';
COMMENT ON COLUMN orders.channel IS 'sales channel, as the producer sent it';
COMMENT ON COLUMN orders.loyalty_level IS 'loyalty level, as the producer sent it; an unknown level does not bypass a threshold';
COMMENT ON COLUMN orders.admission IS 'TAKEN, BYPASSED or WOULD_REFUSE (shadow mode); null: no area decided';
COMMENT ON COLUMN orders.has_details IS 'whether order_details has a row; most reads skip it';
COMMENT ON COLUMN orders.paid_at IS 'when the order was first reported as paid; later reports do not change it; null: never';
COMMENT ON COLUMN orders.partner IS 'partner of the latest attempt; before the first attempt, the first partner of the service type; null: your own fleet';
COMMENT ON COLUMN orders.job_id IS 'the partner''s job id of the running attempt';
COMMENT ON COLUMN orders.poll_no IS 'number of polls about the booking of the running attempt';
COMMENT ON COLUMN orders.next_poll_at IS 'time of the next poll; null: no poll is needed';
COMMENT ON COLUMN orders.job_id_asks IS 'number of requests for a job id, over all bookings; total_attempts in events, alerts and logs';
COMMENT ON COLUMN orders.former_drivers IS 'drivers who gave the order back or lost it; they get no further offer of it';
COMMENT ON COLUMN orders.attempt_no IS 'number of attempts so far; the latest one runs while attempt_deadline is set';
COMMENT ON COLUMN orders.round IS 'number of the search round; a driver whose offer expired is asked again in the next round';
COMMENT ON COLUMN orders.attempt_deadline IS 'end of the running attempt; null: no attempt runs';
COMMENT ON COLUMN orders.wave_no IS 'number of the running attempt''s wave; each wave asks further drivers';
COMMENT ON COLUMN orders.next_wave_at IS 'start of the next wave; null: no attempt runs, or its last wave does';
COMMENT ON COLUMN orders.next_attempt_at IS 'start of the next attempt; null while an attempt runs, or if none is needed';
COMMENT ON COLUMN orders.pickup_at IS 'when the customer wants to be picked up; null: as soon as possible';
COMMENT ON COLUMN orders.starts_at IS 'when dispatch of a scheduled order starts, and its lifetime with it; later changes of the configuration do not move it; null: the creation started dispatch';
COMMENT ON COLUMN orders.warn_at IS 'when dispatchers are notified that the order has no driver; null: never, or they were notified';
COMMENT ON COLUMN orders.lifetime_waived IS 'the order is PENDING, and its lifetime does not end it, as configured for its service type';
COMMENT ON COLUMN orders.trip_deadline IS 'deadline of the next trip step while the order has a driver; null after support was notified, or if no limit is configured';
COMMENT ON COLUMN orders.held_for_review IS 'timers are stopped until a person decides';
COMMENT ON COLUMN orders.held_reason IS 'reason for the review, as text for people';
COMMENT ON COLUMN orders.hold_cause IS 'reason for the review, for programs: {"kind": "dead_timer", "job": "dispatch:ORD-1:1"}; null: not under review';
COMMENT ON COLUMN orders.owes_refund IS 'a paid order that ended without a ride and whose refund is not settled';
COMMENT ON COLUMN orders.closed_status IS 'status of a closed order; null: the order is open';
COMMENT ON COLUMN orders.version IS 'incremented by every change; a change names the version that its decision used';
COMMENT ON COLUMN orders.write_id IS 'id of the latest write; a process that lost the answer to a COMMIT searches for it';
COMMENT ON COLUMN orders.creation_id IS 'id of the first write; a process that lost the answer to a creation searches for it, also after later changes; null: created in SQL';

-- For lists of orders, newest first. No index has the column `status`, in its keys or its predicate: then a change of the status
-- would write an entry into every index.
CREATE INDEX orders_by_age ON orders (created_at, id);
CREATE INDEX orders_by_customer ON orders (customer_id, created_at, id) WHERE customer_id IS NOT NULL;
CREATE INDEX orders_by_driver ON orders (driver_id, created_at, id) WHERE driver_id IS NOT NULL;
CREATE INDEX orders_by_owner ON orders (owner, created_at, id) WHERE owner IS NOT NULL;
CREATE INDEX orders_closed_by_status ON orders (closed_status, created_at, id) WHERE closed_status IS NOT NULL;
-- Lists of open orders by status or service type read this index too. Their cost is bounded by the open orders.
CREATE INDEX orders_open_by_age ON orders (created_at, id) WHERE closed_at IS NULL;
CREATE INDEX orders_open_by_area ON orders (area_id, created_at, id) WHERE closed_at IS NULL AND area_id IS NOT NULL;
-- Orders that were created for later. Other orders have no entry.
CREATE INDEX orders_by_pickup ON orders (pickup_at, id) WHERE starts_at IS NOT NULL AND closed_at IS NULL;
CREATE INDEX orders_by_pickup_in_area ON orders (area_id, service_type, pickup_at)
    WHERE starts_at IS NOT NULL AND closed_at IS NULL AND area_id IS NOT NULL;
CREATE INDEX orders_to_decide ON orders (created_at, id) WHERE needs_decision;
CREATE INDEX orders_open ON orders (id) WHERE closed_at IS NULL;
CREATE INDEX orders_by_job_id ON orders (job_id) WHERE job_id IS NOT NULL;
-- For erasures.
CREATE INDEX orders_by_former_driver ON orders USING gin (former_drivers) WHERE former_drivers <> '{}';
-- A driver of your own fleet has at most one active order, also under concurrent writes. Partners manage their own drivers.
CREATE UNIQUE INDEX orders_one_active_per_driver ON orders (driver_id) WHERE on_trip AND partner IS NULL;
-- Orders that wait in an area. Its columns do not change while an order waits.
CREATE INDEX orders_waiting ON orders (area_id, service_type) INCLUDE (lifetime_deadline)
    WHERE searching AND area_id IS NOT NULL;
-- Orders that wait for a driver of your own fleet, in cells of a twentieth of a degree, about 5.5 km from south to north. A
-- statement reads the oldest orders of a few cells in order, so its cost does not depend on the orders that wait elsewhere. Its
-- columns change while an order waits only if its pickup is changed.
CREATE INDEX orders_waiting_by_place ON orders (service_type, floor(pickup_lat * 20), floor(pickup_lng * 20), created_at, id)
    WHERE searching_fleet;
-- Closed orders, oldest first. Lists of owed refunds and the cleanup read this index.
--
-- The indexes of sweeps are B-trees. The cleanup removes rows by age, and new rows fill their space, so after a while each
-- range of a BRIN index would span from the oldest row to the newest.
CREATE INDEX orders_closed ON orders (owes_refund, closed_at, id) WHERE closed_at IS NOT NULL;

-- Sets `paid_at`, whichever program writes the order. A later payment status does not clear it. Refunds, their alerts and the
-- checker read it.
CREATE FUNCTION dispatchq_keep_paid_at() RETURNS trigger
    LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND (OLD.paid_at IS NOT NULL OR OLD.payment_status IN ('PAID', 'SETTLEMENT')) THEN
        NEW.paid_at := coalesce(OLD.paid_at, NEW.paid_at, NEW.updated_at);
    ELSIF NEW.payment_status IN ('PAID', 'SETTLEMENT') THEN
        NEW.paid_at := coalesce(NEW.paid_at, NEW.updated_at);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER keep_paid_at_of_new BEFORE INSERT ON orders
    FOR EACH ROW WHEN (NEW.paid_at IS NULL AND NEW.payment_status IN ('PAID', 'SETTLEMENT'))
    EXECUTE FUNCTION dispatchq_keep_paid_at();
CREATE TRIGGER keep_paid_at BEFORE UPDATE ON orders
    FOR EACH ROW WHEN (NEW.paid_at IS DISTINCT FROM OLD.paid_at
                       OR (NEW.paid_at IS NULL AND NEW.payment_status IN ('PAID', 'SETTLEMENT')))
    EXECUTE FUNCTION dispatchq_keep_paid_at();

-- Contents that people need, and the labels that the driver must have. Dispatch reads only the labels, and only for orders with
-- contents, so the row of the order stays narrow. Removed with its order.
CREATE TABLE order_details (
    order_id        text PRIMARY KEY REFERENCES orders (id) ON DELETE CASCADE,
    pickup_address  text CHECK (char_length(pickup_address) BETWEEN 1 AND 300),
    dropoff_lat     double precision CHECK (dropoff_lat BETWEEN -90 AND 90),
    dropoff_lng     double precision CHECK (dropoff_lng BETWEEN -180 AND 180),
    dropoff_address text CHECK (char_length(dropoff_address) BETWEEN 1 AND 300),
    notes           text CHECK (char_length(notes) BETWEEN 1 AND 1000),
    contact         jsonb CHECK (jsonb_typeof(contact) = 'object'),
    metadata        jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(metadata) = 'object'),
    requires        text[] NOT NULL DEFAULT '{}' CHECK (dispatchq_are_skills(requires)),
    created_at      timestamptz(3) NOT NULL,
    erased_at       timestamptz(3),
    version         bigint NOT NULL DEFAULT 0,
    CHECK ((dropoff_lat IS NULL) = (dropoff_lng IS NULL)),
    CHECK (dropoff_address IS NULL OR dropoff_lat IS NOT NULL)
);
COMMENT ON COLUMN order_details.contact IS 'name, phone (E.164) and email, each optional; only the driver of the order and staff of the desk read it';
COMMENT ON COLUMN order_details.metadata IS 'the producer''s own values, text by text';
COMMENT ON COLUMN order_details.requires IS 'labels that the driver must have; an erasure keeps them';
COMMENT ON COLUMN order_details.created_at IS 'time of the order''s creation';
COMMENT ON COLUMN order_details.erased_at IS 'when personal data was removed, by an erasure or after retention.contact; null: not yet';
COMMENT ON COLUMN order_details.version IS 'incremented by every change of the contents or of the pickup location; 0 also for an order without a row';
CREATE INDEX order_details_by_metadata ON order_details USING gin (metadata jsonb_path_ops) WHERE metadata <> '{}';
CREATE INDEX order_details_to_erase ON order_details (created_at, order_id) WHERE erased_at IS NULL;

-- Key of the links with which customers follow their orders. The links are derived from it and are not stored. A new key ends all
-- links.
CREATE TABLE tracking_key (
    one    boolean PRIMARY KEY DEFAULT true CHECK (one),
    secret bytea NOT NULL CHECK (octet_length(secret) = 32)
);
COMMENT ON TABLE tracking_key IS 'secret from which the links for customers are derived; one row';
INSERT INTO tracking_key (secret)
    VALUES (sha256((gen_random_uuid()::text || gen_random_uuid()::text || gen_random_uuid()::text)::bytea));

CREATE TABLE offers (
    id           uuid NOT NULL,
    order_id     text NOT NULL REFERENCES orders (id),
    attempt_no   integer NOT NULL,
    wave         integer NOT NULL DEFAULT 1 CHECK (wave >= 1),
    round        integer NOT NULL,
    driver_id    text NOT NULL,
    slot         smallint NOT NULL DEFAULT 1 CHECK (slot >= 1),
    version      integer NOT NULL DEFAULT 0,
    state        text NOT NULL DEFAULT 'offered'
                 CHECK (state IN ('offered', 'accepted', 'declined', 'expired', 'superseded', 'withdrawn')),
    rank         integer CHECK (rank >= 1),
    score        double precision,
    distance_m   double precision,
    reason       text,
    offered_at   timestamptz(3) NOT NULL,
    expires_at   timestamptz(3) NOT NULL,
    responded_at timestamptz(3),
    PRIMARY KEY (order_id, attempt_no, driver_id)
);
COMMENT ON COLUMN offers.id IS 'a random UUID, which clients name together with the order; no index, so statements name the order too';
COMMENT ON COLUMN offers.wave IS 'number of the wave of the attempt that asked the driver';
COMMENT ON COLUMN offers.slot IS 'offer slot, from 1 to the configured maximum of live offers; a driver''s live offers have different slots, which enforces the maximum';
COMMENT ON COLUMN offers.rank IS 'rank among the drivers that could be asked, from 1';
COMMENT ON COLUMN offers.score IS 'the rank is by score, smallest first: distance in metres, minus idle time, plus live offers, both converted to metres';
COMMENT ON COLUMN offers.reason IS 'why it ended, if a reason was given';
COMMENT ON COLUMN offers.version IS 'incremented by every change of the order that its driver sees; a waiting app then gets the offer again';
CREATE UNIQUE INDEX offers_one_accepted_per_order ON offers (order_id) WHERE state = 'accepted';
CREATE UNIQUE INDEX offers_live_by_driver ON offers (driver_id, slot) WHERE state = 'offered';
-- Each ended offer is in one of these two indexes.
CREATE INDEX offers_unwanted ON offers (driver_id, responded_at) WHERE state IN ('declined', 'expired');
CREATE INDEX offers_settled ON offers (driver_id, responded_at) WHERE state IN ('accepted', 'superseded', 'withdrawn');

-- Drivers considered for an attempt, with the reason for each rank. Arrays take half the space of JSON, which repeats the names of
-- its members for each driver. The table is separate from the history because it is kept for a shorter time (retention.messages)
-- and because the erasure of a driver scans it.
CREATE TABLE rankings (
    order_id     text NOT NULL REFERENCES orders (id) ON DELETE CASCADE,
    attempt_no   integer NOT NULL,
    at           timestamptz(3) NOT NULL,
    drivers      text[] NOT NULL DEFAULT '{}',
    distances_m  real[] NOT NULL DEFAULT '{}',
    idle_min     real[] NOT NULL DEFAULT '{}',
    live_offers  smallint[] NOT NULL DEFAULT '{}',
    scores       double precision[] NOT NULL DEFAULT '{}',
    excluded_why text[] NOT NULL DEFAULT '{}',
    missing      text[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (order_id, attempt_no)
);
COMMENT ON TABLE rankings IS 'the latest search of each attempt, even one that found no driver';
COMMENT ON COLUMN rankings.drivers IS 'drivers who could be asked, best first, followed by those who were excluded, nearest first';
COMMENT ON COLUMN rankings.distances_m IS 'one distance per driver';
COMMENT ON COLUMN rankings.scores IS 'one score per driver who could be asked, like idle_min and live_offers';
COMMENT ON COLUMN rankings.excluded_why IS 'one reason per excluded driver';
COMMENT ON COLUMN rankings.missing IS 'one text per excluded driver: the required labels that the driver lacks, separated by commas; no text if no driver lacks one';
CREATE INDEX rankings_by_age ON rankings (at);

-- Returns the distance between two locations in metres, on the same sphere as the ranking of drivers.
CREATE FUNCTION dispatchq_distance_m(lat_a float8, lng_a float8, lat_b float8, lng_b float8) RETURNS float8
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT 2 * 6371008.8 * asin(sqrt(least(1.0,
        sin(radians(lat_b - lat_a) / 2) ^ 2
        + cos(radians(lat_a)) * cos(radians(lat_b)) * sin(radians(lng_b - lng_a) / 2) ^ 2)))
$$;
