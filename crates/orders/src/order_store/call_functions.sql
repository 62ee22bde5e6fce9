-- create order
SELECT c.id,
       CASE WHEN set_config('dispatchq.write_id', c.write_id, true) IS NOT NULL
             AND set_config('dispatchq.starts_at', coalesce(c.starts_at::text, ''), true) IS NOT NULL
             AND set_config('dispatchq.located', CASE WHEN c.area_id IS NULL THEN '' ELSE 'on' END, true) IS NOT NULL
             AND (c.max_waiting IS NULL
                  OR dispatchq_take_place(c.id, c.area_id, c.service_type, c.max_waiting))
             AND (c.max_scheduled IS NULL
                  OR dispatchq_take_hour(c.id, c.area_id, c.service_type, c.hour_from, c.max_scheduled))
            THEN CASE WHEN dispatchq_create_order(
                               c.id, c.service_type, c.pickup_lat, c.pickup_lng, c.payment_status, c.amount_minor,
                               c.currency, c.area_id, c.customer_id, c.actor,
                               c.lifetime_ms * interval '1 millisecond', c.owner, c.key_id, c.language,
                               CASE WHEN c.pickup_at IS NULL THEN c.details
                                    ELSE coalesce(c.details, '{}') || jsonb_build_object('pickup_at', c.pickup_at) END)
                      THEN dispatchq_keep_admission(c.id, c.channel, c.loyalty_level, c.admission, c.met_waiting,
                                                    c.met_threshold)
                           AND (c.reports IS NULL OR dispatchq_report_creation(c.id, c.reports))
                      ELSE false END END
FROM (SELECT * FROM json_to_recordset($1::json) AS c (
          id text, write_id text, service_type text, pickup_lat float8, pickup_lng float8, payment_status text,
          amount_minor bigint, currency text, area_id text, customer_id text, actor text, lifetime_ms float8,
          owner text, key_id uuid, max_waiting bigint, language text, channel text, loyalty_level text,
          admission text, met_waiting bigint, met_threshold bigint, details jsonb,
          pickup_at timestamptz, starts_at timestamptz, max_scheduled bigint, hour_from timestamptz, reports json)
      ORDER BY area_id, service_type, id) c
