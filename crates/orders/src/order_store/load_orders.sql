-- load order
SELECT q.place, o.id, o.service_type, o.area_id, o.customer_id, o.channel, o.loyalty_level, o.admission,
       o.pickup_lat, o.pickup_lng, o.amount_minor, o.currency, o.payment_status, o.paid_at, o.status, o.partner, o.job_id,
       o.driver_id, o.former_drivers, o.attempt_no, o.round, o.attempt_deadline, o.wave_no, o.next_wave_at, o.next_attempt_at, o.poll_no,
       o.next_poll_at, o.job_id_asks, o.lifetime_deadline, o.lifetime_waived,
       o.trip_deadline, o.held_for_review, o.held_reason, o.hold_cause, o.version, o.created_at, o.updated_at, o.closed_at,
       o.owner, o.language, o.has_details, o.pickup_at, o.starts_at, o.warn_at,
       dispatchq_now() AS now,
       CASE WHEN o.partner IS NULL
            THEN (SELECT json_agg(json_build_object(
                             'id', f.id, 'attempt_no', f.attempt_no, 'wave', f.wave, 'round', f.round, 'driver_id', f.driver_id,
                             'state', f.state, 'offered_at', f.offered_at, 'expires_at', f.expires_at)
                             ORDER BY f.attempt_no, f.offered_at, f.rank)
                  FROM offers f
                  WHERE f.order_id = o.id
                    AND (f.attempt_no = o.attempt_no OR f.state IN ('offered', 'accepted') OR f.id = q.offer))
            END AS offers,
       CASE WHEN o.partner IS NOT NULL
            THEN (SELECT json_agg(b ORDER BY b.attempt_no) FROM bookings b WHERE b.order_id = o.id)
            END AS bookings,
       (SELECT json_agg(json_build_object('id', m.id, 'next_attempt_at', m.next_attempt_at) ORDER BY m.id)
        FROM outbox m WHERE m.order_id = o.id AND m.state || '' = 'pending') AS messages,
       (SELECT json_agg(json_build_object('id', a.id, 'kind', a.kind, 'next_escalation_at', a.next_escalation_at)
                        ORDER BY a.id)
        FROM alerts a WHERE a.order_id = o.id AND a.next_escalation_at IS NOT NULL AND a.gave_up_at IS NULL) AS alerts,
       CASE WHEN o.partner IS NOT NULL
            THEN (SELECT json_agg(json_build_object('id', i.id, 'received_at', i.received_at) ORDER BY i.id)
                  FROM inbox i WHERE i.order_id = o.id AND i.state || '' = 'pending')
            END AS callbacks,
       (SELECT json_agg(p ORDER BY p.received_at) FROM payment_events p WHERE p.order_id = o.id) AS payments,
       CASE WHEN o.status = 'PENDING_JOB_ID' AND o.next_poll_at IS NULL
            THEN (SELECT s.polling_percent FROM partner_settings s WHERE s.partner = o.partner)
            END AS polling_percent,
       CASE WHEN o.status = 'REFUND_PENDING'
            THEN (SELECT r.next_try_at FROM refunds r WHERE r.order_id = o.id) END AS refund_at,
       CASE WHEN o.status IN ('REFUND_PENDING', 'REFUNDED')
            THEN (SELECT json_build_object('refund_id', r.refund_id, 'other_refund_ids', r.other_refund_ids,
                                           'was_paid', r.service_paid, 'has_failed', r.service_failed)
                  FROM refunds r WHERE r.order_id = o.id) END AS refund
FROM unnest($1::text[], $2::uuid[]) WITH ORDINALITY AS q (id, offer, place) JOIN orders o ON o.id = q.id
