-- create orders
WITH c AS MATERIALIZED (
    SELECT * FROM json_to_recordset($1::json) AS c (
        id text, write_id uuid, service_type text, pickup_lat float8, pickup_lng float8, payment_status text,
        amount_minor bigint, currency text, area_id text, customer_id text, actor text, lifetime_ms float8,
        owner text, key_id uuid, language text, channel text, loyalty_level text, admission text,
        met_waiting bigint, met_threshold bigint, holder uuid, key text, request_hash text, work_id uuid,
        details jsonb, pickup_at timestamptz, starts_at timestamptz, warn_at timestamptz, reports json)),
t AS MATERIALIZED (SELECT dispatchq_now() AS now, set_config('dispatchq.located', $2, true)),
o AS (
    INSERT INTO orders (id, service_type, area_id, customer_id, pickup_lat, pickup_lng, amount_minor, currency,
                        payment_status, status, partner, next_attempt_at, lifetime_deadline, created_at, updated_at,
                        owner, language, channel, loyalty_level, admission, write_id, creation_id, has_details, pickup_at,
                        starts_at, warn_at)
    SELECT c.id, c.service_type, c.area_id, c.customer_id, c.pickup_lat, c.pickup_lng, c.amount_minor, c.currency,
           c.payment_status, CASE WHEN c.starts_at IS NOT NULL THEN 'SCHEDULED' WHEN s.partner IS NULL THEN 'DISPATCHING' ELSE 'PENDING_JOB_ID' END,
           s.partner, coalesce(c.starts_at, t.now), coalesce(c.starts_at, t.now) + coalesce(c.lifetime_ms * interval '1 millisecond', s.lifetime), t.now, t.now,
           coalesce(c.owner, substring(c.actor FROM '^producer:(.+)$')), c.language, c.channel, c.loyalty_level,
           c.admission, c.write_id, c.write_id, c.details IS NOT NULL, c.pickup_at, c.starts_at, c.warn_at
    FROM c JOIN service_types s ON s.service_type = c.service_type CROSS JOIN t{checks}
    ORDER BY c.id
    ON CONFLICT (id) DO NOTHING
    RETURNING id, service_type, area_id, customer_id, channel, loyalty_level, admission, pickup_lat, pickup_lng,
              amount_minor, currency, payment_status, paid_at, status, partner, job_id, driver_id, former_drivers, attempt_no,
              round, attempt_deadline, wave_no, next_wave_at, next_attempt_at, poll_no, next_poll_at, job_id_asks, lifetime_deadline,
              lifetime_waived, trip_deadline, held_for_review, held_reason, hold_cause, version, created_at, updated_at,
              closed_at, owner, language, has_details, pickup_at, starts_at, warn_at),
e AS (
    INSERT INTO order_events (order_id, from_status, to_status, reason, actor, at, key_id)
    SELECT o.id, NULL, o.status, 'ORDER_CREATED', c.actor, o.created_at, c.key_id FROM o JOIN c ON c.id = o.id),
f AS (
    INSERT INTO order_feed (order_id, owner, kind, status, reason, at, has_details)
    SELECT o.id, o.owner, step.kind, o.status, 'ORDER_CREATED', o.created_at, o.has_details
    FROM o CROSS JOIN unnest(CASE WHEN o.starts_at IS NULL THEN ARRAY['order.created']
                                  ELSE ARRAY['order.created', 'order.scheduled'] END) AS step (kind)
    RETURNING order_id, kind, seq),
w AS (
    INSERT INTO shadow_refusals (at, source, order_id, area_id, service_type, waiting, threshold, channel, loyalty_level)
    SELECT o.created_at, 'create', o.id, coalesce(o.area_id, ''), o.service_type, c.met_waiting, c.met_threshold,
           o.channel, o.loyalty_level
    FROM o JOIN c ON c.id = o.id WHERE o.admission = 'WOULD_REFUSE'){parts}
SELECT c.id AS given_id,
       CASE WHEN s.service_type IS NOT NULL OR c.key IS NOT NULL THEN o.id IS NOT NULL
            WHEN set_config('dispatchq.write_id', c.write_id::text, true) IS NOT NULL
                 AND set_config('dispatchq.starts_at', coalesce(c.starts_at::text, ''), true) IS NOT NULL
                 AND dispatchq_create_order(
                         c.id, c.service_type, c.pickup_lat, c.pickup_lng, c.payment_status, c.amount_minor,
                         c.currency, c.area_id, c.customer_id, c.actor, c.lifetime_ms * interval '1 millisecond',
                         c.owner, c.key_id, c.language,
                         CASE WHEN c.pickup_at IS NULL THEN c.details
                              ELSE coalesce(c.details, '{}') || jsonb_build_object('pickup_at', c.pickup_at) END)
            THEN dispatchq_keep_admission(c.id, c.channel, c.loyalty_level, c.admission, c.met_waiting,
                                          c.met_threshold)
                 AND (c.reports IS NULL OR dispatchq_report_creation(c.id, c.reports))
            ELSE false END AS is_created,
       t.now, {messages} AS messages, o.*
FROM c CROSS JOIN t LEFT JOIN o ON o.id = c.id LEFT JOIN service_types s ON s.service_type = c.service_type
