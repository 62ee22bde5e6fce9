-- A creation whose answer was lost is known again, also where a later change has put its own id into `write_id`.
ALTER TABLE orders ADD COLUMN creation_id uuid;
-- What the creating session says, whatever function it calls. No change writes it.
ALTER TABLE orders ALTER COLUMN creation_id SET DEFAULT nullif(current_setting('dispatchq.write_id', true), '')::uuid;
COMMENT ON COLUMN orders.creation_id IS 'the first write: a program that lost the answer to a creation finds its own order by it; null: created in SQL';

-- As in 0024 and 0027, with what tells of the customer since then: where and with which loyalty level the order was placed, the
-- customer's language, and what a payment service said. Its owner and those who may call it stay.
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
    RETURN true;
END $$;
DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION dispatchq_erase_order(text) SET search_path = pg_catalog, %I, pg_temp', current_schema());
END $$;
