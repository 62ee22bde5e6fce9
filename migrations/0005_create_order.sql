-- The durations that configuration gives each service type, published by `dispatchq migrate`, `serve` and `work`, for
-- producers that create orders in SQL.
CREATE TABLE service_types (
    service_type text PRIMARY KEY,
    lifetime     interval NOT NULL CHECK (lifetime > interval '0'),
    updated_at   timestamptz(3) NOT NULL DEFAULT dispatchq_now()
);

-- Creates an order, in the caller's transaction, past admission: the one way orders come into being. Its timers are
-- enqueued by the caller, or by the reconciler within seconds. Returns false when an order of this id exists already.
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
    actor text DEFAULT 'sql'
) RETURNS boolean
    LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    now timestamptz := dispatchq_now();
    life interval;
BEGIN
    SELECT s.lifetime INTO life FROM service_types s WHERE s.service_type = dispatchq_create_order.service_type;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'unknown service type %', dispatchq_create_order.service_type
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'add it under [service_types] in config.toml, then run: dispatchq migrate';
    END IF;
    INSERT INTO orders (id, service_type, area_id, customer_id, pickup_lat, pickup_lng, amount_minor, currency,
                        payment_status, status, next_attempt_at, lifetime_deadline, created_at, updated_at)
    VALUES (dispatchq_create_order.order_id, dispatchq_create_order.service_type, dispatchq_create_order.area_id,
            dispatchq_create_order.customer_id, dispatchq_create_order.pickup_lat, dispatchq_create_order.pickup_lng,
            dispatchq_create_order.amount_minor, dispatchq_create_order.currency,
            dispatchq_create_order.payment_status, 'DISPATCHING', now, now + life, now, now)
    ON CONFLICT (id) DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO order_events (order_id, from_status, to_status, reason, actor, at)
    VALUES (dispatchq_create_order.order_id, NULL, 'DISPATCHING', 'ORDER_CREATED', dispatchq_create_order.actor, now);
    RETURN true;
END $$;
