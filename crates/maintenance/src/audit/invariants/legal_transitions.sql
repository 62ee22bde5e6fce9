SELECT DISTINCT order_id, coalesce(from_status, 'nothing') || ' -> ' || to_status
FROM audit_events
WHERE coalesce(from_status, 'nothing') || ' -> ' || to_status <> ALL ($1::text[])
