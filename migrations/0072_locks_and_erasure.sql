-- Two installations in two schemas of one database do not wait for each other, nor skip each other's rounds.

-- The id of an advisory lock of this installation. In the schema `public` it is the number itself: programs of the version before, which
-- run beside this one, know no other.
CREATE FUNCTION dispatchq_lock(lock bigint) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT CASE n.nspname WHEN 'public' THEN lock ELSE lock # hashtextextended(n.nspname, 0) END
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = 'orders'::regclass
$$;
-- As above, of the first half of a lock of two halves.
CREATE FUNCTION dispatchq_lock(lock integer) RETURNS integer LANGUAGE sql STABLE AS $$
    SELECT CASE n.nspname WHEN 'public' THEN lock ELSE lock # hashtext(n.nspname) END
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = 'orders'::regclass
$$;

-- As before, by a lock of this installation.
CREATE OR REPLACE FUNCTION dispatchq_take_place(order_id text, area_id text, service_type text, max_waiting bigint) RETURNS boolean
    LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(dispatchq_lock(hashtextextended('waiting:' || area_id || ':' || service_type, 0)));
    -- Statements of their own, so that they see what was committed while the first one waited.
    IF EXISTS (SELECT 1 FROM orders o WHERE o.id = order_id) THEN
        RETURN true;  -- the same order, by a quicker request
    END IF;
    RETURN dispatchq_waiting(area_id, service_type) < max_waiting;
END $$;

-- A table without a key cannot be replicated, nor can one of its rows be named.
ALTER TABLE area_parts ADD COLUMN id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY;

-- As in 0049, with the reasons of people who were on the order.
CREATE OR REPLACE FUNCTION dispatchq_erase_order(erased text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    since timestamptz;
BEGIN
    -- The version makes a change that was decided on what is erased here lose its race.
    UPDATE orders SET customer_id = NULL, channel = NULL, loyalty_level = NULL, language = NULL,
           pickup_lat = round(pickup_lat::numeric, 1), pickup_lng = round(pickup_lng::numeric, 1),
           held_reason = CASE WHEN held_for_review THEN 'erased' END, version = version + 1
    WHERE id = erased AND NOT dispatchq_order_in_use(erased)
    RETURNING created_at INTO since;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE order_events SET detail = NULL WHERE order_id = erased AND at >= since AND detail IS NOT NULL;
    UPDATE order_events_kept SET detail = NULL WHERE order_id = erased AND detail IS NOT NULL;
    UPDATE offers SET reason = NULL, distance_m = NULL, score = NULL WHERE order_id = erased;
    DELETE FROM rankings WHERE order_id = erased;
    UPDATE outbox_attempts a SET error = 'erased' FROM outbox m
    WHERE m.order_id = erased AND a.outbox_id = m.id AND a.error IS NOT NULL;
    UPDATE outbox SET payload = '{}', last_error = NULL WHERE order_id = erased;
    UPDATE alerts SET payload = '{}', ack_note = NULL WHERE order_id = erased;
    UPDATE bookings SET last_error = NULL WHERE order_id = erased;
    UPDATE inbox SET body = '{}' WHERE order_id = erased;
    UPDATE refunds SET last_error = NULL WHERE order_id = erased;
    -- Written in the transaction that created the order, with its time: found by the index of times.
    UPDATE shadow_refusals SET channel = NULL, loyalty_level = NULL WHERE at = since AND order_id = erased;
    DELETE FROM idempotency_keys WHERE body ->> 'order_id' = erased;
    UPDATE dead_letters SET envelope = NULL, error = 'erased', resolved_why = NULL
    WHERE split_part(job_id, ':', 2) = erased;
    -- People on the order, and people who moved its jobs: `dispatch:ORD-1:1`.
    UPDATE staff_actions SET reason = NULL
    WHERE CASE WHEN strpos(subject, ':') > 0 THEN split_part(subject, ':', 2) ELSE subject END = erased
      AND (starts_with(action, 'ORDER_') OR starts_with(action, 'JOB_')) AND reason IS NOT NULL;
    RETURN true;
END $$;

-- As in 0054, with what the record of staff says about the driver's keys: their names, and why they were made, replaced and revoked.
CREATE OR REPLACE FUNCTION dispatchq_erase_driver_orders(erased text, pseudonym text, most integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    -- a partner's driver is known to the partner without the partner's name, as JSON writes it
    partners_word text := to_json(split_part(erased, ':', 2))::text;
    touched text[];
    since timestamptz;
BEGIN
    IF EXISTS (SELECT 1 FROM orders o WHERE o.driver_id = erased AND o.status IN ('DRIVER_ASSIGNED', 'PICKED_UP'))
       OR EXISTS (SELECT 1 FROM offers f WHERE f.driver_id = erased AND f.state = 'offered') THEN
        RAISE EXCEPTION 'the driver has an order or an offer' USING ERRCODE = 'object_in_use';
    END IF;
    DELETE FROM drivers WHERE id = erased;
    -- Found by their time: names are used again after a key has ended.
    UPDATE staff_actions s
    SET subject = CASE WHEN s.subject = k.name THEN 'erased ' || k.id ELSE k.id || ' erased' END, reason = NULL
    FROM api_keys k
    WHERE k.driver_id = erased AND s.subject IN (k.id || ' ' || k.name, k.name) AND starts_with(s.action, 'KEY_')
      AND (s.at BETWEEN k.created_at AND k.created_at + interval '1 minute'
           OR s.at BETWEEN k.revoked_at AND k.revoked_at + interval '1 minute');
    UPDATE api_keys SET driver_id = pseudonym, name = 'erased ' || id, revoked_at = coalesce(revoked_at, dispatchq_now())
    WHERE driver_id = erased;
    -- Orders of one time share days of the history.
    SELECT array_agg(t.id), min(t.created_at) INTO touched, since
    FROM (SELECT p.id, p.created_at FROM orders p JOIN dispatchq_orders_of_driver(erased) AS m (id) ON m.id = p.id
          ORDER BY p.created_at, p.id LIMIT most) t;
    IF touched IS NULL THEN
        RETURN 0;
    END IF;
    -- In this order, as running programs lock them: orders, then what hangs on them.
    PERFORM 1 FROM orders o WHERE o.id = ANY (touched) ORDER BY o.id FOR NO KEY UPDATE;
    UPDATE orders o SET driver_id = CASE WHEN o.driver_id = erased THEN pseudonym ELSE o.driver_id END,
           former_drivers = array_replace(o.former_drivers, erased, pseudonym), version = o.version + 1
    WHERE o.id = ANY (touched) AND (o.driver_id = erased OR erased = ANY (o.former_drivers));
    UPDATE offers SET driver_id = pseudonym, reason = NULL, distance_m = NULL, score = NULL
    WHERE order_id = ANY (touched) AND driver_id = erased;
    UPDATE order_events e
    SET actor = CASE WHEN e.actor = 'driver:' || erased THEN 'driver:' || pseudonym ELSE e.actor END,
        key_id = CASE WHEN e.actor = 'driver:' || erased THEN NULL ELSE e.key_id END,
        detail = NULL
    WHERE e.order_id = ANY (touched) AND e.at >= since
      AND (e.actor = 'driver:' || erased OR strpos(e.detail, erased) > 0);
    UPDATE order_events_kept e
    SET actor = CASE WHEN e.actor = 'driver:' || erased THEN 'driver:' || pseudonym ELSE e.actor END,
        key_id = CASE WHEN e.actor = 'driver:' || erased THEN NULL ELSE e.key_id END,
        detail = NULL
    WHERE e.order_id = ANY (touched) AND (e.actor = 'driver:' || erased OR strpos(e.detail, erased) > 0);
    UPDATE outbox_attempts a SET error = 'erased' FROM outbox m
    WHERE m.id = a.outbox_id AND m.order_id = ANY (touched) AND strpos(a.error, erased) > 0;
    UPDATE outbox SET last_error = NULL WHERE order_id = ANY (touched) AND strpos(last_error, erased) > 0;
    UPDATE alerts SET ack_note = NULL WHERE order_id = ANY (touched) AND strpos(ack_note, erased) > 0;
    UPDATE bookings SET last_error = NULL WHERE order_id = ANY (touched) AND strpos(last_error, erased) > 0;
    UPDATE inbox SET body = '{}'
    WHERE order_id = ANY (touched) AND state <> 'pending' AND strpos(erased, ':') > 0 AND strpos(body::text, partners_word) > 0;
    UPDATE dead_letters SET envelope = NULL, error = 'erased', resolved_why = NULL
    WHERE split_part(job_id, ':', 2) = ANY (touched) AND (strpos(error, erased) > 0 OR strpos(resolved_why, erased) > 0);
    RETURN cardinality(touched);
END $$;
DO $$
DECLARE
    function regprocedure;
BEGIN
    FOREACH function IN ARRAY ARRAY['dispatchq_erase_order(text)', 'dispatchq_erase_driver_orders(text, text, integer)']::regprocedure[] LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, %I, pg_temp', function, current_schema());
    END LOOP;
END $$;
