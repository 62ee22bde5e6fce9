-- Erasure of a person's data, also on a restored backup, and the removal of old records of staff.

CREATE TABLE erasures (
    id          bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    subject     text NOT NULL CHECK (subject IN ('customer', 'driver', 'order')),
    subject_id  text NOT NULL,
    pseudonym   text,
    reason      text NOT NULL,
    actor       text NOT NULL,
    erased_at   timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    orders      bigint,
    progress    jsonb,
    CHECK ((pseudonym IS NOT NULL) = (subject = 'driver')),
    UNIQUE (subject, subject_id, erased_at)
);
COMMENT ON TABLE erasures IS 'erasures, which are repeated on a restored backup; kept as long as backups are (retention.erasures)';
COMMENT ON COLUMN erasures.pseudonym IS 'replaces the id of the driver in the history';
COMMENT ON COLUMN erasures.orders IS 'number of orders that contained data; null until the erasure is finished';
COMMENT ON COLUMN erasures.progress IS 'progress of a driver''s erasure: table, last checked row, orders so far; null before it starts and after it ends';
CREATE INDEX erasures_by_age ON erasures (erased_at);
CREATE INDEX erasures_unfinished ON erasures (erased_at) WHERE orders IS NULL;

-- Returns whether the data of an order is still needed, because work on the order remains.
CREATE FUNCTION dispatchq_order_in_use(order_id text) RETURNS boolean
    LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT 1 FROM orders o WHERE o.id = $1 AND o.closed_at IS NULL)
        OR EXISTS (SELECT 1 FROM outbox m WHERE m.order_id = $1 AND m.state || '' = 'pending')
        OR EXISTS (SELECT 1 FROM alerts a WHERE a.order_id = $1 AND a.acked_at IS NULL)
        OR EXISTS (SELECT 1 FROM bookings b WHERE b.order_id = $1 AND b.state = 'cancel_wanted')
        OR EXISTS (SELECT 1 FROM inbox i WHERE i.order_id = $1 AND i.state = 'pending')
$$;

-- Removes personal data from the details of an order. It keeps the required labels, and the dropoff to a tenth of a degree.
CREATE FUNCTION dispatchq_erase_details(erased text) RETURNS void
    LANGUAGE sql AS $$
    UPDATE order_details
    SET pickup_address = NULL, dropoff_address = NULL, notes = NULL, contact = NULL, metadata = '{}',
        dropoff_lat = round(dropoff_lat::numeric, 1), dropoff_lng = round(dropoff_lng::numeric, 1),
        erased_at = dispatchq_now()
    WHERE order_id = erased AND erased_at IS NULL;
    UPDATE bookings SET places = NULL WHERE order_id = erased AND places IS NOT NULL
$$;

-- Removes customer data and free text from an order. It keeps the states and everything that the checker reads. Returns false
-- if the order does not exist or is in use.
CREATE FUNCTION dispatchq_erase_order(erased text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    since timestamptz;
BEGIN
    -- Because of the new version, a concurrent change that was decided on the old values fails.
    UPDATE orders SET customer_id = NULL, channel = NULL, loyalty_level = NULL, language = NULL,
           pickup_lat = round(pickup_lat::numeric, 1), pickup_lng = round(pickup_lng::numeric, 1),
           held_reason = CASE WHEN held_for_review THEN 'erased' END, hold_cause = NULL, version = version + 1
    WHERE id = erased AND NOT dispatchq_order_in_use(erased)
    RETURNING created_at INTO since;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM dispatchq_erase_details(erased);
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
    -- The row has the same time as the order, because one transaction created both. So the index on `at` finds it.
    UPDATE shadow_refusals SET channel = NULL, loyalty_level = NULL WHERE at = since AND order_id = erased;
    DELETE FROM idempotency_keys WHERE body ->> 'order_id' = erased;
    UPDATE dead_letters SET envelope = NULL, error = 'erased', resolved_why = NULL
    WHERE split_part(job_id, ':', 2) = erased;
    -- Records about the order and its jobs, such as `dispatch:ORD-1:1`.
    UPDATE staff_actions SET reason = NULL
    WHERE CASE WHEN strpos(subject, ':') > 0 THEN split_part(subject, ':', 2) ELSE subject END = erased
      AND (starts_with(action, 'ORDER_') OR starts_with(action, 'JOB_')) AND reason IS NOT NULL;
    RETURN true;
END $$;

-- Removes saved filters with the id of an erased person: as a value, or as a word of their name, which is free text.
CREATE FUNCTION dispatchq_erase_filters(erased text) RETURNS void
    LANGUAGE sql AS $$
    DELETE FROM saved_filters
    WHERE name = erased OR erased = ANY (string_to_array(name, ' '))
       OR EXISTS (SELECT FROM jsonb_each_text(filter) AS f (field, value) WHERE f.value = erased)
$$;

-- Returns the ids of orders that contain a driver's id, in the row or in an offer. In a union, each part uses its own index.
CREATE FUNCTION dispatchq_orders_of_driver(driver text) RETURNS SETOF text
    LANGUAGE sql STABLE AS $$
    SELECT o.id FROM orders o WHERE o.driver_id = driver
    UNION SELECT o.id FROM orders o WHERE o.former_drivers <> '{}' AND o.former_drivers @> ARRAY[driver]
    UNION SELECT f.order_id FROM offers f WHERE f.driver_id = driver AND f.state = 'offered'
    UNION SELECT f.order_id FROM offers f WHERE f.driver_id = driver AND f.state IN ('declined', 'expired')
    UNION SELECT f.order_id FROM offers f WHERE f.driver_id = driver AND f.state IN ('accepted', 'superseded', 'withdrawn')
$$;

-- Removes a driver's row, revokes the driver's keys, and replaces the driver by a pseudonym in at most `most` orders and their
-- dependent rows. Returns the number of these orders; callers repeat the call until it returns 0. Each call finishes its
-- orders, so it stores no progress. The caller erases the driver in other tables (rankings, messages). Fails while the driver
-- has an active order or a live offer.
CREATE FUNCTION dispatchq_erase_driver_orders(erased text, pseudonym text, most integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    -- the partner's own id of the driver, without our prefix, quoted as in JSON
    partners_word text := to_json(split_part(erased, ':', 2))::text;
    touched text[];
    since timestamptz;
BEGIN
    IF EXISTS (SELECT 1 FROM orders o WHERE o.driver_id = erased AND o.status IN ('DRIVER_ASSIGNED', 'PICKED_UP'))
       OR EXISTS (SELECT 1 FROM offers f WHERE f.driver_id = erased AND f.state = 'offered') THEN
        RAISE EXCEPTION 'the driver has an order or an offer' USING ERRCODE = 'object_in_use';
    END IF;
    DELETE FROM drivers WHERE id = erased;
    -- Also matches the time, because a name can be reused after its key has ended.
    UPDATE staff_actions s
    SET subject = CASE WHEN s.subject = k.name THEN 'erased ' || k.id ELSE k.id || ' erased' END, reason = NULL
    FROM api_keys k
    WHERE k.driver_id = erased AND s.subject IN (k.id || ' ' || k.name, k.name) AND starts_with(s.action, 'KEY_')
      AND (s.at BETWEEN k.created_at AND k.created_at + interval '1 minute'
           OR s.at BETWEEN k.revoked_at AND k.revoked_at + interval '1 minute');
    UPDATE api_keys SET driver_id = pseudonym, name = 'erased ' || id, revoked_at = coalesce(revoked_at, dispatchq_now())
    WHERE driver_id = erased;
    -- Takes the oldest orders first, because orders of the same time share days of the history.
    SELECT array_agg(t.id), min(t.created_at) INTO touched, since
    FROM (SELECT p.id, p.created_at FROM orders p JOIN dispatchq_orders_of_driver(erased) AS m (id) ON m.id = p.id
          ORDER BY p.created_at, p.id LIMIT most) t;
    IF touched IS NULL THEN
        RETURN 0;
    END IF;
    -- Locks rows in the same sequence as the programs: orders first, then their dependent rows.
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

-- Records. deploy/postgres/roles.sql revokes UPDATE and DELETE on these tables from `dispatchq_run`, which changes them only
-- with these functions.

-- Records the progress of an erasure until it is finished.
CREATE FUNCTION dispatchq_note_erasure(
    erased text, erased_id text, since timestamptz, how_far jsonb, done_orders bigint
) RETURNS void
    LANGUAGE sql SECURITY DEFINER AS $$
    UPDATE erasures SET progress = how_far, orders = done_orders
    WHERE subject = erased AND subject_id = erased_id AND erased_at = since AND orders IS NULL;
$$;

-- Removes a driver's id from records of staff. It ignores the ids of records that do not name the driver. Fails if no erasure
-- of the driver is recorded.
CREATE FUNCTION dispatchq_redact_staff_actions(ids bigint[], driver text, pseudonym text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    redacted bigint;
BEGIN
    IF NOT EXISTS (SELECT 1 FROM erasures e WHERE e.subject = 'driver' AND e.subject_id = driver) THEN
        RAISE EXCEPTION 'no erasure of this driver is recorded' USING ERRCODE = 'insufficient_privilege';
    END IF;
    UPDATE staff_actions s
    SET subject = CASE WHEN s.subject = driver OR right(s.subject, length(driver) + 1) = ' ' || driver
                       THEN left(s.subject, length(s.subject) - length(driver)) || pseudonym ELSE s.subject END,
        reason = NULL
    WHERE s.id = ANY (ids)
      AND (s.subject = driver OR right(s.subject, length(driver) + 1) = ' ' || driver OR strpos(s.reason, driver) > 0);
    GET DIAGNOSTICS redacted = ROW_COUNT;
    RETURN redacted;
END $$;

-- Removes those of the given records that are older than `age`. Returns their ids. Fails if `age` is less than a day.
CREATE FUNCTION dispatchq_remove_old_records(record_table text, ids bigint[], age interval) RETURNS SETOF bigint
    LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    cut_off timestamptz := dispatchq_now() - age;
BEGIN
    IF age IS NULL OR age < interval '1 day' THEN
        RAISE EXCEPTION 'records are kept for at least a day, not for %', age USING ERRCODE = 'invalid_parameter_value';
    END IF;
    CASE record_table
        WHEN 'staff_actions' THEN
            RETURN QUERY DELETE FROM staff_actions r WHERE r.id = ANY (ids) AND r.at < cut_off RETURNING r.id;
        WHEN 'staff_requests' THEN
            RETURN QUERY DELETE FROM staff_requests r WHERE r.id = ANY (ids) AND r.at < cut_off RETURNING r.id;
        WHEN 'admission_audit' THEN
            RETURN QUERY DELETE FROM admission_audit r WHERE r.id = ANY (ids) AND r.at < cut_off RETURNING r.id;
        WHEN 'erasures' THEN
            RETURN QUERY DELETE FROM erasures r WHERE r.id = ANY (ids) AND r.erased_at < cut_off RETURNING r.id;
        ELSE
            RAISE EXCEPTION '% is not a table of records', record_table USING ERRCODE = 'invalid_parameter_value';
    END CASE;
END $$;
COMMENT ON FUNCTION dispatchq_remove_old_records IS 'the only way to remove records of staff and erasures';
