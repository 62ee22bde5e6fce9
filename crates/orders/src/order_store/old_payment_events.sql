,
po AS (
    -- keeps the new event, the latest 99 of the others, and the first one that reported a payment
    DELETE FROM payment_events USING pe JOIN u ON u.id = pe.order_id
    WHERE payment_events.order_id = pe.order_id
      AND payment_events.event_id IN (
          SELECT k.event_id FROM payment_events k WHERE k.order_id = pe.order_id
          ORDER BY k.received_at DESC OFFSET 99)
      AND payment_events.event_id IS DISTINCT FROM (
          SELECT k.event_id FROM payment_events k
          WHERE k.order_id = pe.order_id AND k.payment_status IN ('PAID', 'SETTLEMENT')
          ORDER BY k.received_at LIMIT 1))
