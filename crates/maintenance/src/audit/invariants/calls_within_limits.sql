WITH open AS (
    SELECT t.server_id, e.sent_at AS since,
           e.sent_at + e.latency_us * interval '1 microsecond' - interval '50 milliseconds' AS until
    FROM audit_provider_calls e JOIN audit_transactions t USING (binding_id, cycle)
    WHERE e.part = 'end' AND e.sent_at IS NOT NULL AND e.latency_us > 50000),
at_servers AS (
    SELECT o.server_id, s.max_concurrent, o.since, o.until
    FROM open o JOIN provider_servers s ON s.id = o.server_id WHERE o.since >= s.updated_at),
steps AS (
    SELECT server_id, max_concurrent AS most, since AS at, 1 AS step FROM at_servers
    UNION ALL SELECT server_id, max_concurrent, until, -1 FROM at_servers
    UNION ALL SELECT 'all servers', $1::bigint, since, 1 FROM open
    UNION ALL SELECT 'all servers', $1::bigint, until, -1 FROM open)
SELECT server_id, max(calls) || ' calls were open, of ' || max(most)
FROM (SELECT server_id, most, sum(step) OVER (PARTITION BY server_id ORDER BY at, step) AS calls FROM steps) s
WHERE calls > most GROUP BY server_id
