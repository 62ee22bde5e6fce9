-- What is known about a person can be erased, and erased again on a restored backup.

CREATE TABLE erasures (
    id          bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    subject     text NOT NULL CHECK (subject IN ('customer', 'driver', 'order')),
    subject_id  text NOT NULL,
    pseudonym   text,
    reason      text NOT NULL,
    actor       text NOT NULL,
    erased_at   timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    orders      bigint,
    CHECK ((pseudonym IS NOT NULL) = (subject = 'driver')),
    UNIQUE (subject, subject_id, erased_at)
);
COMMENT ON TABLE erasures IS 'who was erased, to be erased again on a restored backup; kept as long as backups are (retention.erasures)';
COMMENT ON COLUMN erasures.pseudonym IS 'what stands for the driver in the history';
COMMENT ON COLUMN erasures.orders IS 'orders that held something; null while it is not finished';
CREATE INDEX erasures_by_age ON erasures (erased_at);

-- Whether something is still to be done about an order, so that its data is needed.
CREATE FUNCTION dispatchq_order_in_use(order_id text) RETURNS boolean
    LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT 1 FROM orders o WHERE o.id = $1 AND o.closed_at IS NULL)
        OR EXISTS (SELECT 1 FROM outbox m WHERE m.order_id = $1 AND m.state = 'pending')
        OR EXISTS (SELECT 1 FROM alerts a WHERE a.order_id = $1 AND a.acked_at IS NULL)
        OR EXISTS (SELECT 1 FROM bookings b WHERE b.order_id = $1 AND b.state = 'cancel_wanted')
        OR EXISTS (SELECT 1 FROM inbox i WHERE i.order_id = $1 AND i.state = 'pending')
$$;

-- Removes from an order what tells of its customer, and all free text. The states it went through stay, and so does what the
-- invariants of the history ask about. False: there is no such order, or it is in use.
CREATE FUNCTION dispatchq_erase_order(erased text) RETURNS boolean
    LANGUAGE plpgsql AS $$
DECLARE
    since timestamptz;
BEGIN
    -- The version makes a change that was decided on what is erased here lose its race.
    UPDATE orders SET customer_id = NULL, pickup_lat = round(pickup_lat::numeric, 1), pickup_lng = round(pickup_lng::numeric, 1),
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
    DELETE FROM idempotency_keys WHERE body ->> 'order_id' = erased;
    UPDATE dead_letters SET envelope = NULL, error = 'erased', resolved_why = NULL
    WHERE split_part(job_id, ':', 2) = erased;
    RETURN true;
END $$;

-- Puts a pseudonym in the place of a driver, everywhere, and removes what else tells of the driver. Returns how many orders
-- it concerned. Refused while the driver has an order or an offer.
CREATE FUNCTION dispatchq_erase_driver(erased text, pseudonym text) RETURNS bigint
    LANGUAGE plpgsql AS $$
DECLARE
    -- as JSON writes it, so that D1 is not found in D10
    word text := to_json(erased)::text;
    new_word text := to_json(pseudonym)::text;
    -- a partner's driver is known to the partner without the partner's name
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
    SELECT array_agg(t.id), min(t.created_at) INTO touched, since
    FROM (SELECT o.id, o.created_at FROM orders o WHERE o.driver_id = erased OR erased = ANY (o.former_drivers)
          UNION
          SELECT o.id, o.created_at FROM offers f JOIN orders o ON o.id = f.order_id WHERE f.driver_id = erased) t;
    -- In this order, as running programs lock them: orders, then what hangs on them.
    UPDATE orders o SET driver_id = CASE WHEN o.driver_id = erased THEN pseudonym ELSE o.driver_id END,
           former_drivers = array_replace(o.former_drivers, erased, pseudonym), version = o.version + 1
    WHERE o.id = ANY (touched) AND (o.driver_id = erased OR erased = ANY (o.former_drivers));
    UPDATE offers SET driver_id = pseudonym, reason = NULL, distance_m = NULL, score = NULL WHERE driver_id = erased;
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
    -- Also of orders the driver was only looked at for.
    DELETE FROM rankings WHERE strpos(candidates::text, word) > 0;
    UPDATE outbox SET payload = replace(payload::text, word, new_word)::jsonb,
           -- `{driver}-{version}`; the keys of other messages are numbers and ids that may look like a driver's
           dedupe_key = CASE WHEN kind IN ('ASSIGNED', 'UNASSIGNED') AND starts_with(dedupe_key, erased || '-')
                             THEN pseudonym || substr(dedupe_key, length(erased) + 1) ELSE dedupe_key END,
           last_error = NULL
    WHERE strpos(payload::text, word) > 0
       OR (kind IN ('ASSIGNED', 'UNASSIGNED') AND starts_with(dedupe_key, erased || '-'))
       OR (order_id = ANY (touched) AND strpos(last_error, erased) > 0);
    UPDATE outbox_attempts a SET error = 'erased' FROM outbox m
    WHERE m.id = a.outbox_id AND m.order_id = ANY (touched) AND strpos(a.error, erased) > 0;
    UPDATE alerts SET payload = replace(payload::text, word, new_word)::jsonb,
           ack_note = CASE WHEN strpos(ack_note, erased) > 0 THEN NULL ELSE ack_note END
    WHERE strpos(payload::text, word) > 0 OR (order_id = ANY (touched) AND strpos(ack_note, erased) > 0);
    UPDATE bookings SET last_error = NULL WHERE order_id = ANY (touched) AND strpos(last_error, erased) > 0;
    UPDATE inbox SET body = '{}'
    WHERE order_id = ANY (touched) AND state <> 'pending' AND strpos(erased, ':') > 0 AND strpos(body::text, partners_word) > 0;
    DELETE FROM idempotency_keys WHERE strpos(body::text, word) > 0;
    UPDATE dead_letters SET envelope = NULL, error = 'erased', resolved_why = NULL
    WHERE strpos(envelope, word) > 0
       OR (split_part(job_id, ':', 2) = ANY (touched)
           AND (strpos(error, erased) > 0 OR strpos(resolved_why, erased) > 0));
    RETURN coalesce(cardinality(touched), 0);
END $$;
