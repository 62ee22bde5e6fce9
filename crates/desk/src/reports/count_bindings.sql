-- count bindings
SELECT count(*) FILTER (WHERE b.state = 'STOPPED') AS stopped,
       count(*) FILTER (WHERE b.state = 'RUNNING') AS running,
       count(*) FILTER (WHERE b.state = 'PAUSED') AS paused,
       count(*) FILTER (WHERE b.state = 'STOPPING') AS stopping,
       count(*) FILTER (WHERE b.phase = 'WAITING_OTP' AND b.otp_value IS NULL) AS waiting_otp,
       coalesce(extract(epoch FROM max(n.now)
           - min(b.otp_deadline - (b.config->>'otp_timeout_ms')::integer * interval '1 millisecond')
             FILTER (WHERE b.phase = 'WAITING_OTP' AND b.otp_value IS NULL)), 0)::float8 AS otp_oldest_s,
       coalesce(greatest(0, extract(epoch FROM max(n.now)
           - min(least(b.next_at, b.call_until, b.otp_deadline))
             FILTER (WHERE b.needs_timer AND (s.paused_until IS NULL OR s.paused_until <= n.now)))),
           0)::float8 AS most_overdue_s,
       (SELECT count(*) FROM transactions WHERE settle_at IS NOT NULL) AS unresolved
FROM bindings b JOIN provider_servers s ON s.id = b.server_id
CROSS JOIN (SELECT dispatchq_now() AS now) n
WHERE b.deleted_at IS NULL
