-- An order keeps how it came past admission: where it was ordered, the loyalty level as it was said, and the verdict.
ALTER TABLE orders
    ADD COLUMN channel text,
    ADD COLUMN loyalty_level text,
    ADD COLUMN admission text;
COMMENT ON COLUMN orders.channel IS 'where the customer ordered, as the producer says it';
COMMENT ON COLUMN orders.loyalty_level IS 'as the producer says it; an unknown one bypassed nothing';
COMMENT ON COLUMN orders.admission IS 'TAKEN, BYPASSED or WOULD_REFUSE (shadow mode); null: no area decided';

-- Keeps the verdict on an order that was created in the same transaction, with a row in shadow_refusals where shadow mode let it in.
-- Returns true. Not part of dispatchq_create_order, which producers in SQL call: their orders pass no admission.
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
