-- Areas, how many orders may wait in each, and who changed what.

CREATE TABLE areas (
    id         text PRIMARY KEY CHECK (id ~ '^[A-Za-z0-9_-]{1,64}$'),
    name       text NOT NULL,
    priority   integer NOT NULL DEFAULT 0,
    geometry   jsonb,
    geohashes  text[] NOT NULL DEFAULT '{}',
    version    bigint NOT NULL DEFAULT 1,
    updated_at timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    CHECK (geometry IS NOT NULL OR cardinality(geohashes) > 0)
);
COMMENT ON COLUMN areas.priority IS 'where areas overlap the highest wins: an airport over its city';
COMMENT ON COLUMN areas.geometry IS 'GeoJSON Polygon or MultiPolygon; null: geohashes alone';

-- What is null follows the installation's configuration.
CREATE TABLE area_limits (
    area_id                 text NOT NULL REFERENCES areas (id) ON DELETE CASCADE,
    service_type            text NOT NULL,
    max_waiting_orders      bigint CHECK (max_waiting_orders BETWEEN 0 AND 1000000),
    dispatch_timeout_sec    bigint CHECK (dispatch_timeout_sec BETWEEN 1 AND 86400),
    order_lifetime_sec      bigint CHECK (order_lifetime_sec BETWEEN 1 AND 604800),
    retry_interval_sec      bigint CHECK (retry_interval_sec BETWEEN 1 AND 86400),
    busy_retry_interval_sec bigint CHECK (busy_retry_interval_sec BETWEEN 1 AND 86400),
    cooldown_period_sec     bigint CHECK (cooldown_period_sec BETWEEN 0 AND 86400),
    low_water_percentage    integer CHECK (low_water_percentage BETWEEN 1 AND 100),
    bypass_enabled          boolean,
    bypass_loyalty_levels   text[],
    max_bypass_percentage   integer CHECK (max_bypass_percentage BETWEEN 0 AND 1000),
    enabled                 boolean NOT NULL DEFAULT true,
    priority                integer NOT NULL DEFAULT 0,
    version                 bigint NOT NULL DEFAULT 1,
    updated_at              timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    PRIMARY KEY (area_id, service_type)
);

CREATE TABLE area_overrides (
    area_id    text PRIMARY KEY REFERENCES areas (id) ON DELETE CASCADE,
    status     text NOT NULL CHECK (status IN ('FORCE_BUSY', 'FORCE_AVAILABLE')),
    reason     text NOT NULL,
    expires_at timestamptz(3),
    actor      text NOT NULL,
    created_at timestamptz(3) NOT NULL DEFAULT dispatchq_now()
);
COMMENT ON TABLE area_overrides IS 'AUTO is no row';

-- Whether areas refuse orders at all, and for whom. One row.
CREATE TABLE admission_flag (
    one              boolean PRIMARY KEY DEFAULT true CHECK (one),
    enabled          boolean NOT NULL DEFAULT false,
    enabled_areas    text[] NOT NULL DEFAULT '{}',
    enabled_channels text[] NOT NULL DEFAULT '{}',
    percentage       integer NOT NULL DEFAULT 100 CHECK (percentage BETWEEN 0 AND 100),
    shadow_mode      boolean NOT NULL DEFAULT false,
    version          bigint NOT NULL DEFAULT 1,
    updated_at       timestamptz(3) NOT NULL DEFAULT dispatchq_now()
);
INSERT INTO admission_flag DEFAULT VALUES;
COMMENT ON COLUMN admission_flag.enabled_areas IS 'empty: all';
COMMENT ON COLUMN admission_flag.shadow_mode IS 'nobody is refused; who would have been is counted';

-- Raised with every change of the four tables above: replicas look at nothing else until it has changed.
CREATE TABLE admission_revision (
    one    boolean PRIMARY KEY DEFAULT true CHECK (one),
    number bigint NOT NULL DEFAULT 1
);
INSERT INTO admission_revision DEFAULT VALUES;
CREATE FUNCTION dispatchq_admission_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE admission_revision SET number = number + 1;
    RETURN NULL;
END $$;
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON areas
    FOR EACH STATEMENT EXECUTE FUNCTION dispatchq_admission_changed();
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON area_limits
    FOR EACH STATEMENT EXECUTE FUNCTION dispatchq_admission_changed();
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON area_overrides
    FOR EACH STATEMENT EXECUTE FUNCTION dispatchq_admission_changed();
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON admission_flag
    FOR EACH STATEMENT EXECUTE FUNCTION dispatchq_admission_changed();

CREATE TABLE admission_audit (
    id      bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    at      timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    actor   text NOT NULL,
    what    text NOT NULL,
    area_id text,
    before  jsonb,
    after   jsonb,
    reason  text
);
COMMENT ON TABLE admission_audit IS 'who changed what of areas, limits, overrides and the flag, and why';

-- How areas stood, minute by minute.
CREATE TABLE waiting_snapshots (
    at           timestamptz(3) NOT NULL,
    area_id      text NOT NULL,
    service_type text NOT NULL,
    waiting      bigint NOT NULL,
    threshold    bigint NOT NULL,
    rejected     bigint NOT NULL,
    would_reject bigint NOT NULL,
    bypassed     bigint NOT NULL,
    PRIMARY KEY (at, area_id, service_type)
);
COMMENT ON COLUMN waiting_snapshots.rejected IS 'orders refused since the snapshot before';

-- Who waits where. No column in it changes while an order waits.
CREATE INDEX orders_waiting ON orders (area_id, service_type) INCLUDE (lifetime_deadline)
    WHERE status IN ('PENDING_JOB_ID', 'ASSIGNED', 'DISPATCHING', 'PENDING') AND area_id IS NOT NULL;

-- As before, and with a lifetime of its own.
DROP FUNCTION dispatchq_create_order(text, text, double precision, double precision, text, bigint, text, text, text, text);
CREATE FUNCTION dispatchq_create_order(
    order_id text,
    service_type text,
    pickup_lat double precision,
    pickup_lng double precision,
    payment_status text DEFAULT 'UNPAID',
    amount_minor bigint DEFAULT NULL,
    currency text DEFAULT NULL,
    area_id text DEFAULT NULL,
    customer_id text DEFAULT NULL,
    actor text DEFAULT 'sql',
    lifetime interval DEFAULT NULL
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
    life := coalesce(dispatchq_create_order.lifetime, life);
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

-- Orders that wait in an area for this service.
CREATE FUNCTION dispatchq_waiting(area_id text, service_type text) RETURNS bigint
    LANGUAGE sql STABLE AS $$
    SELECT count(*) FROM orders o
    WHERE o.area_id = $1 AND o.service_type = $2
      AND o.status IN ('PENDING_JOB_ID', 'ASSIGNED', 'DISPATCHING', 'PENDING')
      AND o.lifetime_deadline > dispatchq_now()
$$;

-- Waits for its turn among those who create orders in the same area, and says whether fewer than max_waiting orders wait
-- there. True until the transaction ends: whoever creates in it makes at most max_waiting of them.
CREATE FUNCTION dispatchq_take_place(order_id text, area_id text, service_type text, max_waiting bigint) RETURNS boolean
    LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('waiting:' || area_id || ':' || service_type, 0));
    -- Statements of their own, so that they see what was committed while the first one waited.
    IF EXISTS (SELECT 1 FROM orders o WHERE o.id = order_id) THEN
        RETURN true;  -- the same order, by a quicker request
    END IF;
    RETURN dispatchq_waiting(area_id, service_type) < max_waiting;
END $$;
