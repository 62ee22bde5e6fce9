,
w AS (
    INSERT INTO alerts (order_id, kind, dedupe_key, payload, raised_at, next_escalation_at)
    SELECT al.order_id, al.kind, al.dedupe_key, al.payload, al.at, al.next_escalation_at
    FROM ROWS FROM (json_to_recordset($16::json) AS (
        order_id text, kind text, dedupe_key text, payload jsonb, at timestamptz, next_escalation_at timestamptz))
        WITH ORDINALITY AS al (order_id, kind, dedupe_key, payload, at, next_escalation_at, place)
    JOIN u ON u.id = al.order_id ORDER BY al.place
    ON CONFLICT DO NOTHING RETURNING id, order_id, kind, next_escalation_at)
