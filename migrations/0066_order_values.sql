-- The rules of an order's values in SQL, as HTTP and the command line apply them (crates/model/src/input.rs).

-- Raises 22023 for the first value that breaks its rule; COLUMN names the value. Values that an order may lack are null.
CREATE FUNCTION dispatchq_check_order(
    order_id text,
    service_type text,
    pickup_lat double precision,
    pickup_lng double precision,
    payment_status text,
    amount_minor bigint,
    currency text,
    area_id text,
    customer_id text,
    actor text,
    lifetime interval,
    owner text,
    language text
) RETURNS void
    LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    -- Control characters, bidirectional marks and line ends. They change how a terminal shows the text.
    unsafe CONSTANT text := '[\u0001-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]';
    -- Blanks and characters without width.
    blank CONSTANT text := '^[\s\u0085\u00a0\u00ad\u034f\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028\u2029\u202f\u205f-\u206f\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]*$';
    id CONSTANT text := '^[A-Za-z0-9_-]{1,64}$';
    ascii CONSTANT text := '^[!-~]([ -~]{0,62}[!-~])?$';
    id_rule CONSTANT text := 'must have 1 to 64 characters: letters of a to z, digits, ''_'' or ''-''';
    ascii_rule CONSTANT text :=
        'must have 1 to 64 printable ASCII characters, and no blank at its beginning or end';
    field text;
    rule text;
BEGIN
    CASE
        WHEN (order_id COLLATE "C" ~ id) IS NOT TRUE THEN
            field := 'order_id'; rule := id_rule;
        WHEN order_id = '__binding__' THEN
            field := 'order_id'; rule := 'must not be __binding__, which is reserved';
        WHEN (service_type COLLATE "C" ~ ascii) IS NOT TRUE THEN
            field := 'service_type'; rule := ascii_rule;
        WHEN (pickup_lat BETWEEN -90 AND 90) IS NOT TRUE THEN
            field := 'pickup_lat'; rule := 'must be -90 to 90';
        WHEN (pickup_lng BETWEEN -180 AND 180) IS NOT TRUE THEN
            field := 'pickup_lng'; rule := 'must be -180 to 180';
        WHEN (payment_status COLLATE "C" ~ '^[A-Z_]{1,32}$') IS NOT TRUE THEN
            field := 'payment_status'; rule := 'must have 1 to 32 capital letters or ''_'', such as PAID';
        WHEN amount_minor NOT BETWEEN 0 AND 9007199254740991 THEN
            field := 'amount_minor'; rule := 'must be 0 to 9007199254740991, in the smallest unit of the currency';
        WHEN currency COLLATE "C" !~ '^[A-Z]{3}$' THEN
            field := 'currency'; rule := 'must be a code of ISO 4217 in three capital letters, such as IDR';
        WHEN area_id COLLATE "C" !~ id THEN
            field := 'area_id'; rule := id_rule;
        WHEN customer_id COLLATE "C" !~ ascii THEN
            field := 'customer_id'; rule := ascii_rule;
        WHEN (actor ~ unsafe OR actor ~ blank OR char_length(actor) > 200) IS NOT FALSE THEN
            field := 'actor'; rule := 'must have 1 to 200 characters on one line, and no control character';
        WHEN lifetime NOT BETWEEN interval '1 millisecond' AND interval '365 days' THEN
            field := 'lifetime'; rule := 'must be 1 ms to 365 days';
        WHEN owner ~ unsafe OR owner ~ blank OR char_length(owner) > 64 THEN
            field := 'owner'; rule := 'must have 1 to 64 characters on one line, and no control character';
        WHEN language COLLATE "C" !~ '^[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8})*$' OR language ~ '-.$' OR char_length(language) > 35 THEN
            field := 'language'; rule := 'must be a tag of BCP 47, such as id, en or vi';
        ELSE
            RETURN;
    END CASE;
    RAISE EXCEPTION '% %', field, rule USING ERRCODE = 'invalid_parameter_value', COLUMN = field;
END $$;
COMMENT ON FUNCTION dispatchq_check_order IS 'raises 22023 for the first value of an order that breaks its rule';

-- As before, with the values checked first.
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
    holder text := coalesce(dispatchq_create_order.owner, substring(dispatchq_create_order.actor FROM '^producer:(.+)$'));
BEGIN
    PERFORM dispatchq_check_order(
        dispatchq_create_order.order_id, dispatchq_create_order.service_type, dispatchq_create_order.pickup_lat,
        dispatchq_create_order.pickup_lng, dispatchq_create_order.payment_status, dispatchq_create_order.amount_minor,
        dispatchq_create_order.currency, dispatchq_create_order.area_id, dispatchq_create_order.customer_id,
        dispatchq_create_order.actor, dispatchq_create_order.lifetime, holder, dispatchq_create_order.language);
    SELECT s.lifetime, s.partner INTO life, served_by
    FROM service_types s WHERE s.service_type = dispatchq_create_order.service_type;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'unknown service type %', dispatchq_create_order.service_type
            USING ERRCODE = 'invalid_parameter_value', COLUMN = 'service_type',
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
            dispatchq_create_order.payment_status, first_status, served_by, now, now + life, now, now, holder,
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

-- Replacing a function keeps its rights and drops its settings.
DO $$
DECLARE
    created regprocedure := 'dispatchq_create_order(text, text, double precision, double precision, text, bigint, text, text, text,
                             text, interval, text, uuid, text)';
BEGIN
    EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, %I, pg_temp', created, current_schema());
END $$;
