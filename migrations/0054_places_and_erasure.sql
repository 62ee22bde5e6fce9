-- Orders that wait are found by place and age; what tells of a driver is found or walked in steps.

-- The cells of the map are squares of a twentieth of a degree, some 5.5 km from south to north. Of each the oldest orders that wait
-- are read in order, so a look at a few cells costs the same however many wait elsewhere. No column in it changes while an order waits.
CREATE INDEX orders_waiting_by_place ON orders (service_type, floor(pickup_lat * 20), floor(pickup_lng * 20), created_at, id)
    WHERE status = 'DISPATCHING' AND partner IS NULL;

-- A driver is erased in steps, each a small transaction; one that is interrupted is taken up where it was.
ALTER TABLE erasures ADD COLUMN progress jsonb;
COMMENT ON COLUMN erasures.progress IS 'how far the erasure of a driver is: table, last row looked at, orders so far; null before it begins and when it is done';
CREATE INDEX erasures_unfinished ON erasures (erased_at) WHERE orders IS NULL;

-- A driver's orders: those carried out are in orders_by_driver; of the offers each is in one of offers_live_by_driver, offers_unwanted and
-- offers_settled.
CREATE INDEX orders_by_former_driver ON orders USING gin (former_drivers) WHERE former_drivers <> '{}';
CREATE INDEX dead_letters_by_subject ON dead_letters (split_part(job_id, ':', 2));

-- The ids of orders that bear a driver's id, in the row or in an offer.
CREATE FUNCTION dispatchq_orders_of_driver(driver text) RETURNS SETOF text
    LANGUAGE sql STABLE AS $$
    SELECT o.id FROM orders o WHERE o.driver_id = driver
    UNION SELECT o.id FROM orders o WHERE o.former_drivers <> '{}' AND o.former_drivers @> ARRAY[driver]
    UNION SELECT f.order_id FROM offers f WHERE f.driver_id = driver AND f.state = 'offered'
    UNION SELECT f.order_id FROM offers f WHERE f.driver_id = driver AND f.state IN ('declined', 'expired')
    UNION SELECT f.order_id FROM offers f WHERE f.driver_id = driver AND f.state IN ('accepted', 'superseded', 'withdrawn')
$$;

-- Removes a driver's row and keys, and puts a pseudonym in the driver's place in at most so many orders with what hangs on them.
-- Returns how many it were: called until it returns 0. An order is done with at once, so there is nothing to remember in between.
-- What names the driver without an order of the driver's (rankings, messages) is walked over by the program. Refused while the driver
-- has an order or an offer. `dispatchq_erase_driver` of migration 0024 does all at once, for programs of the version before.
CREATE FUNCTION dispatchq_erase_driver_orders(erased text, pseudonym text, most integer) RETURNS bigint
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

-- For those who may erase drivers already, and for no one else.
DO $$
DECLARE
    grantee text;
BEGIN
    EXECUTE format('ALTER FUNCTION dispatchq_erase_driver_orders(text, text, integer) SET search_path = pg_catalog, %I, pg_temp',
                   current_schema());
    REVOKE EXECUTE ON FUNCTION dispatchq_erase_driver_orders(text, text, integer) FROM PUBLIC;
    FOR grantee IN
        SELECT a.grantee::regrole::text FROM pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) a
        WHERE p.oid = 'dispatchq_erase_driver(text, text)'::regprocedure AND a.privilege_type = 'EXECUTE'
          AND a.grantee NOT IN (0, p.proowner)
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION dispatchq_erase_driver_orders(text, text, integer) TO %s', grantee);
    END LOOP;
END $$;
