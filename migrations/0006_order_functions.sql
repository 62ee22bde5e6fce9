-- Creation of orders: the area, the place in it, the checks of values, and dispatchq_create_order() for producers in SQL.
--
-- A trigger sets the area of an order when it is inserted, so a producer in SQL does not need to know areas. The order counts
-- as waiting from its commit on.

-- Orders that Redis does not count yet. A worker counts and removes them within half a second.
CREATE TABLE uncounted_orders (
    order_id text PRIMARY KEY
);
COMMENT ON TABLE uncounted_orders IS 'orders created in SQL that are not yet in the waiting sets of Redis';

-- Returns whether the API has already set the areas of this transaction's orders and taken their places. The API sets this for
-- its own transaction.
CREATE FUNCTION dispatchq_is_located() RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT coalesce(current_setting('dispatchq.located', true), '') = 'on'
$$;

-- Sets the area of a new order by its pickup. This area replaces the one that the producer sent. The area's order lifetime
-- replaces the lifetime of the service type, but not a lifetime that the producer set.
CREATE FUNCTION dispatchq_locate_order() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    located text := dispatchq_area_at(NEW.pickup_lat, NEW.pickup_lng, NEW.service_type);
    usual interval;
    own interval;
BEGIN
    IF located IS NULL THEN
        RETURN NEW;
    END IF;
    NEW.area_id := located;
    SELECT make_interval(secs => l.order_lifetime_sec) INTO own
    FROM area_limits l WHERE l.area_id = located AND l.service_type = NEW.service_type;
    SELECT s.lifetime INTO usual FROM service_types s WHERE s.service_type = NEW.service_type;
    IF own IS NOT NULL AND NEW.lifetime_deadline = coalesce(NEW.starts_at, NEW.created_at) + usual THEN
        NEW.lifetime_deadline := coalesce(NEW.starts_at, NEW.created_at) + own;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER locate BEFORE INSERT ON orders FOR EACH ROW
    WHEN (NEW.closed_at IS NULL AND NOT dispatchq_is_located()) EXECUTE FUNCTION dispatchq_locate_order();

CREATE FUNCTION dispatchq_note_uncounted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO uncounted_orders (order_id) VALUES (NEW.id) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER uncounted AFTER INSERT ON orders FOR EACH ROW
    WHEN (NEW.closed_at IS NULL AND NEW.area_id IS NOT NULL AND NOT dispatchq_is_located())
    EXECUTE FUNCTION dispatchq_note_uncounted();

-- Returns the number of orders of a service type that wait in an area. Without a waiting timeout, an index-only scan is enough.
CREATE FUNCTION dispatchq_waiting(area_id text, service_type text) RETURNS bigint
    LANGUAGE plpgsql STABLE AS $$
DECLARE
    waits_for bigint := (SELECT l.waiting_timeout_sec FROM area_limits l
                         WHERE l.area_id = $1 AND l.service_type = $2);
BEGIN
    IF waits_for IS NULL THEN
        RETURN (SELECT count(*) FROM orders o
                WHERE o.area_id = $1 AND o.service_type = $2
                  AND o.searching
                  AND o.lifetime_deadline > dispatchq_now());
    END IF;
    RETURN (SELECT count(*) FROM orders o
            WHERE o.area_id = $1 AND o.service_type = $2
              AND o.searching
              AND o.lifetime_deadline > dispatchq_now()
              AND coalesce(o.starts_at, o.created_at) > dispatchq_now() - make_interval(secs => waits_for));
END $$;

-- Waits for other creations in the same area, then returns whether fewer than max_waiting orders wait there. The lock is kept
-- until the transaction ends, so no other creation with admission adds an order there before.
CREATE FUNCTION dispatchq_take_place(order_id text, area_id text, service_type text, max_waiting bigint) RETURNS boolean
    LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(dispatchq_lock(hashtextextended('waiting:' || area_id || ':' || service_type, 0)));
    -- Separate statements, so that they see rows that were committed while the first one waited.
    -- A scheduled order needs its place when its dispatch starts.
    IF EXISTS (SELECT 1 FROM orders o WHERE o.id = order_id AND o.status <> 'SCHEDULED') THEN
        RETURN true;  -- a faster request created the same order
    END IF;
    RETURN dispatchq_waiting(area_id, service_type) < max_waiting;
END $$;

-- Returns the number of open scheduled orders of a service type in an area with a pickup in the hour that starts at hour_from.
CREATE FUNCTION dispatchq_scheduled(area_id text, service_type text, hour_from timestamptz) RETURNS bigint
    LANGUAGE sql STABLE AS $$
    SELECT count(*) FROM orders o
    WHERE o.area_id = $1 AND o.service_type = $2 AND o.pickup_at >= $3 AND o.pickup_at < $3 + interval '1 hour'
      AND o.starts_at IS NOT NULL AND o.closed_at IS NULL
$$;

-- Waits for other creations in the same area, then returns whether fewer than max_scheduled orders are scheduled in this hour.
CREATE FUNCTION dispatchq_take_hour(order_id text, area_id text, service_type text, hour_from timestamptz, max_scheduled bigint)
    RETURNS boolean
    LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(dispatchq_lock(hashtextextended('waiting:' || area_id || ':' || service_type, 0)));
    IF EXISTS (SELECT 1 FROM orders o WHERE o.id = order_id) THEN
        RETURN true;
    END IF;
    RETURN dispatchq_scheduled(area_id, service_type, hour_from) < max_scheduled;
END $$;

-- Stores the verdict of admission on an order that was created in the same transaction. If only shadow mode admitted the order,
-- it also adds a row to shadow_refusals. Returns true. It is not part of dispatchq_create_order because orders of producers in
-- SQL are created without admission.
CREATE FUNCTION dispatchq_keep_admission(
    order_id text,
    channel text,
    loyalty_level text,
    admission text,
    waiting bigint,
    threshold bigint
) RETURNS boolean
    LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    IF coalesce(dispatchq_keep_admission.channel, dispatchq_keep_admission.loyalty_level,
                dispatchq_keep_admission.admission) IS NULL THEN
        RETURN true;
    END IF;
    UPDATE orders SET channel = dispatchq_keep_admission.channel,
                      loyalty_level = dispatchq_keep_admission.loyalty_level,
                      admission = dispatchq_keep_admission.admission
    WHERE id = dispatchq_keep_admission.order_id;
    IF dispatchq_keep_admission.admission = 'WOULD_REFUSE' THEN
        INSERT INTO shadow_refusals (at, source, order_id, area_id, service_type, waiting, threshold, channel, loyalty_level)
        SELECT o.created_at, 'create', o.id, coalesce(o.area_id, ''), o.service_type, dispatchq_keep_admission.waiting,
               dispatchq_keep_admission.threshold, o.channel, o.loyalty_level
        FROM orders o WHERE o.id = dispatchq_keep_admission.order_id;
    END IF;
    RETURN true;
END $$;

-- Raises 22023 for the first invalid value; COLUMN names the value. Optional values may be null. The API and the command line
-- apply the same rules (crates/model/src/input.rs).
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
    -- Control characters, bidirectional marks and line breaks, which change how a terminal shows the text.
    unsafe CONSTANT text := '[\u0001-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]';
    -- Matches a text that has only blanks and characters without width.
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
        WHEN order_id IN ('__binding__', '__endpoint__') THEN
            field := 'order_id'; rule := 'must not be ' || order_id || ', which is reserved';
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
        WHEN owner <> dispatchq_key_name(owner) THEN
            field := 'owner'; rule := format('must be written as its key is named: "%s"', dispatchq_key_name(owner));
        WHEN language COLLATE "C" !~ '^[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8})*$' OR language ~ '-.$' OR char_length(language) > 35 THEN
            field := 'language'; rule := 'must be a tag of BCP 47, such as id, en or vi';
        ELSE
            RETURN;
    END CASE;
    RAISE EXCEPTION '% %', field, rule USING ERRCODE = 'invalid_parameter_value', COLUMN = field;
END $$;
COMMENT ON FUNCTION dispatchq_check_order IS 'raises 22023 for the first invalid value of an order';

-- Raises 22023 for the first invalid value of the details of an order; COLUMN names the value. Unknown members are ignored. The
-- API applies the same rules (crates/model/src/details.rs), and in addition the numbering plan of the phone's country.
CREATE FUNCTION dispatchq_check_details(details jsonb) RETURNS void
    LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    -- Same as in dispatchq_check_order.
    unsafe CONSTANT text := '[\u0001-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]';
    blank CONSTANT text := '^[\s\u0085\u00a0\u00ad\u034f\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028\u2029\u202f\u205f-\u206f\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]*$';
    place CONSTANT jsonb := details -> 'dropoff';
    contact CONSTANT jsonb := details -> 'contact';
    metadata CONSTANT jsonb := details -> 'metadata';
    requires CONSTANT jsonb := details -> 'requires';
    texts CONSTANT text[] := ARRAY['pickup.address', 'dropoff.address', 'notes', 'contact.name'];
    most CONSTANT integer[] := ARRAY[300, 300, 1000, 100];
    field text;
    rule text;
    value jsonb;
BEGIN
    FOR place_of IN 1 .. cardinality(texts) LOOP
        value := details #> string_to_array(texts[place_of], '.');
        IF value IS NOT NULL AND value <> 'null'
           AND (jsonb_typeof(value) <> 'string' OR value #>> '{}' ~ unsafe OR value #>> '{}' ~ blank
                OR char_length(value #>> '{}') > most[place_of]) THEN
            field := texts[place_of];
            rule := format('must be a text of 1 to %s characters on one line, without control characters', most[place_of]);
        END IF;
    END LOOP;
    CASE
        WHEN field IS NOT NULL THEN
            NULL;
        WHEN jsonb_typeof(details) <> 'object' THEN
            field := 'details'; rule := 'must be an object';
        WHEN place <> 'null' AND (jsonb_typeof(place) <> 'object' OR jsonb_typeof(place -> 'latitude') IS DISTINCT FROM 'number'
                                  OR jsonb_typeof(place -> 'longitude') IS DISTINCT FROM 'number') THEN
            field := 'dropoff'; rule := 'must be an object with latitude and longitude';
        WHEN place <> 'null' AND ((place ->> 'latitude')::float8 NOT BETWEEN -90 AND 90
                                  OR (place ->> 'longitude')::float8 NOT BETWEEN -180 AND 180) THEN
            field := 'dropoff'; rule := 'must be a place on earth';
        WHEN contact <> 'null' AND jsonb_typeof(contact) <> 'object' THEN
            field := 'contact'; rule := 'must be an object with name, phone and email, each optional';
        WHEN contact ->> 'phone' !~ '^\+[1-9][0-9]{6,14}$' THEN
            field := 'contact.phone'; rule := 'must be an E.164 number, such as +628123456789';
        WHEN contact ->> 'email' !~ '^[^\s@"]+@[^\s@."]+(\.[^\s@."]+)*$' OR char_length(contact ->> 'email') > 254 THEN
            field := 'contact.email'; rule := 'must be an e-mail address of at most 254 characters';
        WHEN metadata <> 'null' AND jsonb_typeof(metadata) <> 'object' THEN
            field := 'metadata'; rule := 'must be an object of texts';
        WHEN metadata <> 'null' AND EXISTS (
                SELECT 1 FROM jsonb_each(metadata) m (key, value)
                WHERE jsonb_typeof(m.value) <> 'string' OR m.key ~ unsafe OR m.key ~ blank OR char_length(m.key) > 40
                   OR m.value #>> '{}' ~ unsafe OR char_length(m.value #>> '{}') > 500) THEN
            field := 'metadata'; rule := 'must have keys of 1 to 40 and values of at most 500 characters on one line';
        WHEN metadata <> 'null' AND (SELECT count(*) > 50 OR sum(octet_length(m.key) + octet_length(m.value)) > 4096
                                     FROM jsonb_each_text(metadata) m (key, value)) THEN
            field := 'metadata'; rule := 'must have at most 50 keys and 4096 bytes in all';
        WHEN requires <> 'null' AND jsonb_typeof(requires) <> 'array' THEN
            field := 'requires'; rule := 'must be a list of labels';
        WHEN requires <> 'null' AND (
                EXISTS (SELECT 1 FROM jsonb_array_elements(requires) AS r (value) WHERE jsonb_typeof(r.value) <> 'string')
                OR NOT dispatchq_are_skills(array(SELECT DISTINCT r.value FROM jsonb_array_elements_text(requires) AS r (value)))) THEN
            field := 'requires';
            rule := 'must have at most 16 labels of 1 to 32 characters: letters of a to z, digits, ''_'' or ''-'', the first a letter or digit';
        ELSE
            RETURN;
    END CASE;
    RAISE EXCEPTION '% %', field, rule USING ERRCODE = 'invalid_parameter_value', COLUMN = split_part(field, '.', 1);
END $$;
COMMENT ON FUNCTION dispatchq_check_details IS 'raises 22023 for the first invalid value of the details of an order';

-- Returns the pickup time of a new order; null: as soon as possible. Raises 22023 for a time without an offset, in the past, or
-- too far ahead. The API applies the same rules (crates/model/src/schedule.rs).
CREATE FUNCTION dispatchq_pickup_at(details jsonb, now timestamptz, max_days_ahead integer) RETURNS timestamptz
    LANGUAGE plpgsql STABLE AS $$
DECLARE
    given CONSTANT text := details ->> 'pickup_at';
    form CONSTANT text := '^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})$';
    rule text;
    at timestamptz;
BEGIN
    IF given IS NULL THEN
        RETURN NULL;
    END IF;
    IF given ~ form THEN
        BEGIN
            at := date_trunc('milliseconds', given::timestamptz);
        EXCEPTION WHEN datetime_field_overflow OR invalid_datetime_format OR invalid_time_zone_displacement_value THEN
            NULL;
        END;
    END IF;
    IF at IS NULL THEN
        rule := 'must be an RFC 3339 time with its offset from UTC, such as 2026-01-09T08:00:00+07:00 or 2026-01-09T01:00:00Z';
    ELSIF at < now - interval '1 second' THEN  -- the API has checked this a moment earlier
        rule := 'is in the past';
    ELSIF at > now + make_interval(hours => 24 * max_days_ahead) + interval '1 second' THEN
        rule := format('is more than %s days ahead', max_days_ahead);
    ELSE
        RETURN at;
    END IF;
    RAISE EXCEPTION 'pickup_at %', rule USING ERRCODE = 'invalid_parameter_value', COLUMN = 'pickup_at';
END $$;

-- Returns the row of order_details for checked details. They have the members of POST /api/v1/orders: pickup (only its address),
-- dropoff, notes, contact, metadata and requires.
CREATE FUNCTION dispatchq_details_row(order_id text, details jsonb, created_at timestamptz) RETURNS order_details
    LANGUAGE sql IMMUTABLE AS $$
    SELECT ROW (
        order_id, details #>> '{pickup,address}', (details #>> '{dropoff,latitude}')::float8,
        (details #>> '{dropoff,longitude}')::float8, details #>> '{dropoff,address}', details ->> 'notes',
        nullif(jsonb_strip_nulls(details -> 'contact'), 'null'), coalesce(nullif(details -> 'metadata', 'null'), '{}'),
        array(SELECT DISTINCT r.value COLLATE "C" FROM jsonb_array_elements_text(coalesce(nullif(details -> 'requires', 'null'), '[]')) AS r (value)
              ORDER BY 1),
        created_at, NULL, 0)::order_details
$$;

-- Creates an order in the caller's transaction, without admission. The caller enqueues its timers, or the reconciler does
-- within seconds. Returns false if an order with this id already exists.
--
-- The function runs with the rights of its owner, so a producer in SQL needs only EXECUTE on it. A login without INSERT on
-- `orders` may name only producers that sql_producers allows it. The recorded actor is then that producer, or the login.
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
    -- name of the producer; by default NAME of the actor `producer:NAME`
    owner text DEFAULT NULL,
    key_id uuid DEFAULT NULL,
    -- BCP 47 tag
    language text DEFAULT NULL,
    -- pickup (only its address), dropoff, notes, contact, metadata, requires and pickup_at, as in POST /api/v1/orders
    details jsonb DEFAULT NULL
) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER AS $$
#variable_conflict use_column
DECLARE
    now timestamptz := dispatchq_now();
    life interval;
    served_by text;
    first_status text;
    lead interval;
    warning interval;
    days_ahead integer;
    pickup timestamptz;
    start timestamptz;
    contents jsonb;
    holder text := coalesce(dispatchq_create_order.owner, substring(dispatchq_create_order.actor FROM '^producer:(.+)$'));
    recorded_actor text := dispatchq_create_order.actor;
    recorded_key uuid := dispatchq_create_order.key_id;
BEGIN
    -- A login with INSERT on `orders` is a program of dispatchq. It passes the actor and the key of its caller.
    IF NOT has_table_privilege(session_user, 'orders', 'INSERT') THEN
        IF holder IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM sql_producers p WHERE p.login = session_user AND p.owner = holder)
        THEN
            RAISE EXCEPTION 'login % may not create orders of producer %', session_user, holder
                USING ERRCODE = 'insufficient_privilege',
                      HINT = 'to allow it, the owner of the schema adds a row (login, owner) to sql_producers';
        END IF;
        IF (recorded_actor = 'producer:' || holder) IS NOT TRUE THEN
            recorded_actor := 'sql:' || session_user;
        END IF;
        recorded_key := NULL;
    END IF;
    PERFORM dispatchq_check_order(
        dispatchq_create_order.order_id, dispatchq_create_order.service_type, dispatchq_create_order.pickup_lat,
        dispatchq_create_order.pickup_lng, dispatchq_create_order.payment_status, dispatchq_create_order.amount_minor,
        dispatchq_create_order.currency, dispatchq_create_order.area_id, dispatchq_create_order.customer_id,
        recorded_actor, dispatchq_create_order.lifetime, holder, dispatchq_create_order.language);
    PERFORM dispatchq_check_details(dispatchq_create_order.details);
    contents := dispatchq_create_order.details - 'pickup_at';
    IF contents = '{}' AND dispatchq_create_order.details ? 'pickup_at' THEN
        contents := NULL;
    END IF;
    SELECT s.lifetime, s.partner, s.lead, s.warn_before, s.max_days_ahead INTO life, served_by, lead, warning, days_ahead
    FROM service_types s WHERE s.service_type = dispatchq_create_order.service_type;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'unknown service type %', dispatchq_create_order.service_type
            USING ERRCODE = 'invalid_parameter_value', COLUMN = 'service_type',
                  HINT = 'add it under [service_types] in config.toml, then run: dispatchq migrate';
    END IF;
    life := coalesce(dispatchq_create_order.lifetime, life);
    pickup := dispatchq_pickup_at(dispatchq_create_order.details, now, days_ahead);
    IF coalesce(current_setting('dispatchq.write_id', true), '') <> '' THEN
        -- The API has decided on admission with this start.
        start := nullif(current_setting('dispatchq.starts_at', true), '')::timestamptz;
    ELSIF pickup - lead > now THEN
        start := pickup - lead;
    END IF;
    first_status := CASE WHEN start IS NOT NULL THEN 'SCHEDULED' WHEN served_by IS NULL THEN 'DISPATCHING' ELSE 'PENDING_JOB_ID' END;
    INSERT INTO orders (id, service_type, area_id, customer_id, pickup_lat, pickup_lng, amount_minor, currency,
                        payment_status, status, partner, next_attempt_at, lifetime_deadline, created_at, updated_at, owner,
                        language, has_details, pickup_at, starts_at, warn_at)
    VALUES (dispatchq_create_order.order_id, dispatchq_create_order.service_type, dispatchq_create_order.area_id,
            dispatchq_create_order.customer_id, dispatchq_create_order.pickup_lat, dispatchq_create_order.pickup_lng,
            dispatchq_create_order.amount_minor, dispatchq_create_order.currency,
            dispatchq_create_order.payment_status, first_status, served_by,
            -- A scheduled order of a producer in SQL is read at once, so that its timers do not wait until they are overdue.
            CASE WHEN coalesce(current_setting('dispatchq.write_id', true), '') = '' THEN now ELSE coalesce(start, now) END,
            coalesce(start, now) + life, now, now, holder, dispatchq_create_order.language, contents IS NOT NULL, pickup, start,
            CASE WHEN warning > interval '0' AND pickup - warning > now THEN pickup - warning END)
    ON CONFLICT (id) DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO order_events (order_id, from_status, to_status, reason, actor, at, key_id)
    VALUES (dispatchq_create_order.order_id, NULL, first_status, 'ORDER_CREATED', recorded_actor, now, recorded_key);
    INSERT INTO order_feed (order_id, owner, kind, status, reason, at, has_details)
    SELECT dispatchq_create_order.order_id, holder, step.kind, first_status, 'ORDER_CREATED', now, contents IS NOT NULL
    FROM unnest(CASE WHEN start IS NULL THEN ARRAY['order.created'] ELSE ARRAY['order.created', 'order.scheduled'] END) AS step (kind);
    IF contents IS NOT NULL THEN
        INSERT INTO order_details
        SELECT * FROM dispatchq_details_row(dispatchq_create_order.order_id, contents, now);
    END IF;
    RETURN true;
END $$;
