-- write binding changes
WITH n AS MATERIALIZED (
    SELECT * FROM json_to_recordset($1::json) AS n (
        id text, expected bigint, server_id text, state text, reason text, config jsonb, cycle bigint,
        phase text, trx_id text, start_confirmed boolean, interval_start timestamptz, next_at timestamptz,
        call_no bigint, call_action text, call_until timestamptz, asks integer, failures integer,
        processing_deadline timestamptz, otp_deadline timestamptz, otp_tries integer, otp_value bytea,
        otp_submitted_at timestamptz, unresolved integer, updated_at timestamptz, deleted_at timestamptz)
    LIMIT (SELECT $4::bigint)),
l AS MATERIALIZED (
    SELECT b.id FROM bindings b JOIN n ON n.id = b.id AND n.expected = b.version
    FOR NO KEY UPDATE OF b SKIP LOCKED),
u AS (
    UPDATE bindings b
    SET server_id = n.server_id, state = n.state, reason = n.reason, config = n.config, cycle = n.cycle,
        phase = n.phase, trx_id = n.trx_id, start_confirmed = n.start_confirmed,
        interval_start = n.interval_start, next_at = n.next_at, call_no = n.call_no, call_action = n.call_action, call_until = n.call_until, asks = n.asks,
        failures = n.failures, processing_deadline = n.processing_deadline, otp_deadline = n.otp_deadline,
        otp_tries = n.otp_tries, otp_value = n.otp_value, otp_submitted_at = n.otp_submitted_at,
        unresolved = n.unresolved, updated_at = n.updated_at, deleted_at = n.deleted_at,
        version = n.expected + 1
    FROM n JOIN l ON l.id = n.id
    WHERE b.id = n.id AND b.version = n.expected
    RETURNING b.id),
h AS MATERIALIZED (
    SELECT h.* FROM (
        SELECT * FROM json_to_recordset($2::json) AS h (
            binding_id text, cycle bigint, begins boolean, trx_id text, server_id text, account_id text,
            status text, reason text, provider_ref text, asks integer, settle_at timestamptz, at timestamptz)
        LIMIT (SELECT $4::bigint)) h
    JOIN u ON u.id = h.binding_id),
hb AS (
    INSERT INTO transactions (trx_id, binding_id, cycle, server_id, account_id, status, started_at)
    SELECT trx_id, binding_id, cycle, server_id, account_id, status, at FROM h WHERE begins),
hm AS (
    UPDATE transactions t
    SET status = coalesce(h.status, t.status),
        reason = CASE WHEN h.status IS NULL THEN t.reason ELSE h.reason END,
        provider_ref = coalesce(h.provider_ref, t.provider_ref), asks = coalesce(h.asks, t.asks),
        settle_at = h.settle_at,
        ended_at = CASE WHEN h.status IN ('SUKSES', 'GAGAL') THEN h.at END
    FROM h
    WHERE NOT h.begins AND t.binding_id = h.binding_id AND t.cycle = h.cycle
      AND t.status NOT IN ('SUKSES', 'GAGAL')),
s AS (
    INSERT INTO transaction_snapshots (binding_id, cycle, call_no, part, at, action, fence, call_until, owner,
                                       result, http_status, sent_at, latency_us, request, response)
    SELECT s.* FROM json_to_recordset($3::json) AS s (
        binding_id text, cycle bigint, call_no bigint, part text, at timestamptz, action text, fence bigint,
        call_until timestamptz, owner text, result text, http_status smallint, sent_at timestamptz,
        latency_us bigint, request text, response text)
    JOIN u ON u.id = s.binding_id)
SELECT id FROM u
