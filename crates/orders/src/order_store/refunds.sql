,
rf AS MATERIALIZED (
    SELECT rf.* FROM json_to_recordset($13::json) AS rf (
        order_id text, at timestamptz, is_asked boolean, amount_minor bigint, currency text, state text,
        last_error text, refund_id text, other_refund_id text, is_paid boolean, has_failed boolean)
    JOIN u ON u.id = rf.order_id),
ra AS (
    INSERT INTO refunds (order_id, amount_minor, currency, next_try_at, created_at)
    SELECT rf.order_id, rf.amount_minor, rf.currency, rf.at, rf.at FROM rf WHERE rf.is_asked
    ON CONFLICT (order_id) DO NOTHING),
ru AS (
    UPDATE refunds
    SET state = coalesce(rf.state, refunds.state),
        next_try_at = CASE WHEN rf.state IS NULL THEN refunds.next_try_at END,
        closed_at = CASE WHEN rf.state IS NULL THEN refunds.closed_at ELSE rf.at END,
        last_error = coalesce(rf.last_error, refunds.last_error),
        refund_id = coalesce(refunds.refund_id, rf.refund_id),
        other_refund_ids = CASE WHEN rf.other_refund_id IS NULL THEN refunds.other_refund_ids
                                ELSE refunds.other_refund_ids || rf.other_refund_id END,
        service_paid = refunds.service_paid OR rf.is_paid,
        service_failed = refunds.service_failed OR rf.has_failed
    FROM rf
    WHERE refunds.order_id = rf.order_id AND NOT rf.is_asked
      AND CASE rf.state WHEN 'refunded' THEN refunds.state <> 'refunded'
                        WHEN 'refused' THEN refunds.state IN ('asking', 'accepted') ELSE true END)
