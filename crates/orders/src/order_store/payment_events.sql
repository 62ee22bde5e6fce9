,
pi AS (
    INSERT INTO payment_events (order_id, event_id, payment_status, received_at)
    SELECT pe.order_id, pe.event_id, pe.payment_status, pe.at FROM pe JOIN u ON u.id = pe.order_id)
