,
z AS (
    -- The time comes from this statement, not from the decision, because the alert may have escalated in between.
    -- An alert is open while acked_by is null. A condition on acked_at would let Postgres read all open alerts.
    UPDATE alerts
    SET acked_at = dispatchq_now(), acked_by = st.actor, ack_note = st.note, acked_key_id = st.key_id,
        next_escalation_at = NULL
    FROM (SELECT DISTINCT ON (a.id) a.id, st.actor, st.note, st.key_id
          FROM ROWS FROM (json_to_recordset($15::json) AS (
              order_id text, kind text, reason text, actor text, note text, key_id uuid)) WITH ORDINALITY
              AS st (order_id, kind, reason, actor, note, key_id, place)
          JOIN u ON u.id = st.order_id
          JOIN alerts a ON a.order_id = st.order_id AND a.kind = st.kind AND a.acked_by IS NULL
              AND (st.reason IS NULL OR a.payload ->> 'reason' = st.reason)
          ORDER BY a.id, st.place) st
    WHERE alerts.id = st.id AND alerts.acked_by IS NULL
    RETURNING alerts.id, alerts.order_id, alerts.kind,
              extract(epoch FROM alerts.acked_at - alerts.raised_at)::float8 AS waited_s)
