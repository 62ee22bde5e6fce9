-- Which key did it, whose order it is, and keys, drivers and users that come to an end.

-- The key behind a name. `actor` keeps its form, role:name.
ALTER TABLE order_events ADD COLUMN key_id uuid;
COMMENT ON COLUMN order_events.key_id IS 'the API key that asked for it; null for workers, partners, the command line and SQL';
ALTER TABLE alerts ADD COLUMN acked_key_id uuid;
ALTER TABLE admission_audit ADD COLUMN key_id uuid;
CREATE VIEW audit_event_keys AS
    SELECT seq, order_id, at, actor, key_id FROM order_events WHERE key_id IS NOT NULL;

-- A name stands for one program or person. Several keys may share it while one replaces the other.
ALTER TABLE api_keys
    ADD COLUMN expires_at    timestamptz(3),
    ADD COLUMN last_used_at  timestamptz(3),
    ADD COLUMN superseded_at timestamptz(3);
COMMENT ON COLUMN api_keys.last_used_at IS 'to the minute';
COMMENT ON COLUMN api_keys.superseded_at IS 'when a new key of the same name replaced this one, which goes on working until it expires or is revoked';
-- Live keys that share a name: of those with the same rights the newest counts, the others get names of their own. A
-- producer keeps the name, for orders belong to it.
UPDATE api_keys k SET name = left(k.name, 51) || '-' || right(k.id::text, 12)
WHERE k.revoked_at IS NULL
  AND EXISTS (SELECT 1 FROM api_keys o
              WHERE o.name = k.name AND o.revoked_at IS NULL
                AND (o.role, o.driver_id) IS DISTINCT FROM (k.role, k.driver_id)
                AND (o.role <> 'producer', o.created_at, o.id) < (k.role <> 'producer', k.created_at, k.id));
UPDATE api_keys k SET superseded_at = dispatchq_now()
WHERE k.revoked_at IS NULL
  AND EXISTS (SELECT 1 FROM api_keys o
              WHERE o.name = k.name AND o.revoked_at IS NULL AND (o.created_at, o.id) > (k.created_at, k.id));
CREATE UNIQUE INDEX api_keys_one_per_name ON api_keys (name) WHERE revoked_at IS NULL AND superseded_at IS NULL;
CREATE INDEX api_keys_by_driver ON api_keys (driver_id) WHERE driver_id IS NOT NULL;

ALTER TABLE drivers
    ADD COLUMN disabled_at timestamptz(3),
    ADD CHECK (disabled_at IS NULL OR NOT available);
COMMENT ON COLUMN drivers.disabled_at IS 'since when the driver gets no work and the driver''s keys are refused';

-- Keys that open the API now.
CREATE VIEW valid_api_keys AS
    SELECT id, name, sha256, role, driver_id, created_at, revoked_at
    FROM api_keys k
    WHERE revoked_at IS NULL
      AND (expires_at IS NULL OR expires_at > dispatchq_now())
      AND NOT EXISTS (SELECT 1 FROM drivers d WHERE d.id = k.driver_id AND d.disabled_at IS NOT NULL);

ALTER TABLE users ADD COLUMN disabled_at timestamptz(3);
COMMENT ON COLUMN users.disabled_at IS 'since when this person is told nothing';

-- The producer an order belongs to. Other producers do not see it.
ALTER TABLE orders ADD COLUMN owner text CHECK (octet_length(owner) BETWEEN 1 AND 256);
COMMENT ON COLUMN orders.owner IS 'name of the producer it belongs to; null: of none, staff alone see it';
-- What producers may still ask about. Older orders are left to staff: rewriting all of them would take hours.
UPDATE orders o SET owner = substr(e.actor, length('producer:') + 1)
FROM order_events e
WHERE e.order_id = o.id AND e.reason = 'ORDER_CREATED' AND e.actor LIKE 'producer:_%'
  AND (o.closed_at IS NULL OR o.closed_at > dispatchq_now() - interval '7 days');

-- As before, with the order's owner and the key that creates it.
DROP FUNCTION dispatchq_create_order(text, text, double precision, double precision, text, bigint, text, text, text, text,
                                     interval);
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
    lifetime interval DEFAULT NULL,
    -- a producer's name; by default that of an actor `producer:NAME`, as programs of an earlier version call it
    owner text DEFAULT NULL,
    key_id uuid DEFAULT NULL
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
                        payment_status, status, partner, next_attempt_at, lifetime_deadline, created_at, updated_at, owner)
    VALUES (dispatchq_create_order.order_id, dispatchq_create_order.service_type, dispatchq_create_order.area_id,
            dispatchq_create_order.customer_id, dispatchq_create_order.pickup_lat, dispatchq_create_order.pickup_lng,
            dispatchq_create_order.amount_minor, dispatchq_create_order.currency,
            dispatchq_create_order.payment_status, first_status, served_by, now, now + life, now, now,
            coalesce(dispatchq_create_order.owner, substring(dispatchq_create_order.actor FROM '^producer:(.+)$')))
    ON CONFLICT (id) DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO order_events (order_id, from_status, to_status, reason, actor, at, key_id)
    VALUES (dispatchq_create_order.order_id, NULL, first_status, 'ORDER_CREATED', dispatchq_create_order.actor, now,
            dispatchq_create_order.key_id);
    RETURN true;
END $$;
