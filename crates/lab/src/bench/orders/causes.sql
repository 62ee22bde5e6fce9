-- causes of job id alerts
WITH refunds AS (SELECT at FROM order_events WHERE reason = 'COMPENSATED_AFTER_PAYMENT' ORDER BY at LIMIT 11)
SELECT (SELECT min(created_at) FROM orders) AS started,
       (SELECT min(at) FROM order_events WHERE reason = 'JOB_ID_VIA_PROACTIVE') AS without_callback,
       (SELECT min(e.at) FROM order_events e JOIN bookings b USING (order_id, attempt_no)
        WHERE e.reason IN ('JOB_ID_VIA_CALLBACK', 'JOB_ID_VIA_PROACTIVE')
          AND e.at - b.booked_at > interval '10 minutes') AS slow,
       (SELECT min(e.at) FROM order_events e
        WHERE e.reason IN ('LIFETIME_TIMEOUT', 'BOOKING_NOT_FOUND')
          AND NOT EXISTS (SELECT 1 FROM bookings b WHERE b.order_id = e.order_id AND b.job_id IS NOT NULL)
       ) AS failed,
       (SELECT min(at) FROM refunds) AS first_refund,
       (SELECT at FROM refunds ORDER BY at OFFSET 10) AS eleventh_refund
