-- The language a customer is told in, and the addresses at which staff are told.

ALTER TABLE orders
    ADD COLUMN language text,
    -- Not validated: the rows that are there have none.
    ADD CONSTRAINT orders_language CHECK (
        language ~ '^[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8})*$' AND octet_length(language) <= 35) NOT VALID;
COMMENT ON COLUMN orders.language IS 'BCP 47: in which the customer is told; null: in texts.customer_language of the settings';

ALTER TABLE users
    ADD COLUMN email text CHECK (octet_length(email) BETWEEN 3 AND 254),
    ADD COLUMN phone text CHECK (phone ~ '^\+[1-9][0-9]{6,14}$');
COMMENT ON COLUMN users.email IS 'where a channel of e-mail reaches this person; null: at the channel''s own addresses';
COMMENT ON COLUMN users.phone IS 'E.164: where a channel of calls reaches this person';

-- As before, with the customer's language. The version before calls it without.
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
    key_id uuid DEFAULT NULL,
    -- BCP 47
    language text DEFAULT NULL
) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER AS $$
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
                        payment_status, status, partner, next_attempt_at, lifetime_deadline, created_at, updated_at, owner,
                        language)
    VALUES (dispatchq_create_order.order_id, dispatchq_create_order.service_type, dispatchq_create_order.area_id,
            dispatchq_create_order.customer_id, dispatchq_create_order.pickup_lat, dispatchq_create_order.pickup_lng,
            dispatchq_create_order.amount_minor, dispatchq_create_order.currency,
            dispatchq_create_order.payment_status, first_status, served_by, now, now + life, now, now,
            coalesce(dispatchq_create_order.owner, substring(dispatchq_create_order.actor FROM '^producer:(.+)$')),
            dispatchq_create_order.language)
    ON CONFLICT (id) DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO order_events (order_id, from_status, to_status, reason, actor, at, key_id)
    VALUES (dispatchq_create_order.order_id, NULL, first_status, 'ORDER_CREATED', dispatchq_create_order.actor, now,
            dispatchq_create_order.key_id);
    RETURN true;
END $$;

-- The rights of the function before it, which goes: two of one name would be ambiguous.
DO $$
DECLARE
    former regprocedure := 'dispatchq_create_order(text, text, double precision, double precision, text, bigint, text, text, text,
                            text, interval, text, uuid)';
    added regprocedure := 'dispatchq_create_order(text, text, double precision, double precision, text, bigint, text, text, text,
                            text, interval, text, uuid, text)';
    grantee text;
BEGIN
    EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, %I, pg_temp', added, current_schema());
    EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', added);
    FOR grantee IN
        SELECT DISTINCT pg_get_userbyid(a.grantee) FROM pg_proc p, aclexplode(p.proacl) a
        WHERE p.oid = former AND a.privilege_type = 'EXECUTE' AND a.grantee <> 0
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', added, grantee);
    END LOOP;
    EXECUTE format('DROP FUNCTION %s', former);
END $$;
