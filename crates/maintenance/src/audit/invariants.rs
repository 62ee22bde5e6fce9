//! Invariants of the history, each with its query in SQL. Each returned row is a violation.

use model::order::{OrderStatus, state};

use super::InvariantViolation;
use foundation::db::Pool;

/// Name and meaning of an invariant, and the query that finds violations as (subject, detail).
#[derive(Debug, Clone, Copy)]
pub struct HistoryInvariant {
    pub name: &'static str,
    pub meaning: &'static str,
    pub(crate) query: &'static str,
}

/// Maximum violations shown per invariant; one error often causes many.
const MOST: usize = 100;

impl HistoryInvariant {
    pub(super) fn name_violations(
        &self,
        rows: Vec<(String, String)>,
    ) -> impl Iterator<Item = InvariantViolation> + use<> {
        let invariant = self.name;
        rows.into_iter().take(MOST).map(move |(subject, detail)| InvariantViolation { invariant, subject, detail })
    }
}

pub const INVARIANTS: [HistoryInvariant; 20] = [
    HistoryInvariant {
        name: "unbroken_chain",
        meaning: "each event starts in the state in which the previous event ended; the last state is the order's",
        query: include_str!("invariants/unbroken_chain.sql"),
    },
    HistoryInvariant {
        name: "one_driver_per_order",
        meaning: "at most one offer of an order is accepted",
        query: "SELECT order_id, count(*) || ' accepted offers' FROM audit_offers WHERE state = 'accepted'
                GROUP BY order_id HAVING count(*) > 1",
    },
    HistoryInvariant {
        name: "the_driver_accepted",
        meaning: "an order's driver accepted its offer, unless assigned by hand",
        query: "SELECT o.order_id, 'driver ' || o.driver_id || ' never accepted'
                FROM audit_orders o WHERE o.driver_id IS NOT NULL
                  AND NOT EXISTS (SELECT 1 FROM audit_offers f WHERE f.order_id = o.order_id
                                  AND f.driver_id = o.driver_id AND f.state = 'accepted')
                  AND NOT EXISTS (SELECT 1 FROM audit_events e WHERE e.order_id = o.order_id
                                  AND e.reason IN ('ASSIGNED_BY_HAND', 'DRIVER_FOUND'))",
    },
    HistoryInvariant {
        name: "one_active_order_per_driver",
        meaning: "a driver of your own fleet has at most one order at a time",
        query: "SELECT driver_id, string_agg(order_id, ', ') FROM audit_orders
                WHERE status IN ('DRIVER_ASSIGNED', 'PICKED_UP') AND driver_id NOT LIKE '%:%'  -- drivers of partners have a colon
                GROUP BY driver_id HAVING count(*) > 1",
    },
    HistoryInvariant {
        name: "accepted_in_time",
        meaning: "every accepted offer was accepted before its expiry and on the latest attempt",
        query: "SELECT order_id, 'offer ' || offer_id || ' was accepted ' || (responded_at - expires_at) || ' late'
                FROM audit_offers WHERE state = 'accepted' AND responded_at >= expires_at
                UNION ALL
                SELECT f.order_id, 'offer ' || f.offer_id || ' of attempt ' || f.attempt_no || ' was accepted after attempt '
                       || later.attempt_no || ' had started'
                FROM audit_offers f JOIN audit_offers later ON later.order_id = f.order_id
                     AND later.attempt_no > f.attempt_no AND later.offered_at < f.responded_at
                WHERE f.state = 'accepted'",
    },
    HistoryInvariant {
        name: "live_offers_only_while_dispatching",
        meaning: "an offer is live only while its order is searching",
        query: "SELECT f.order_id, 'offer ' || f.offer_id || ' is live while the order is ' || o.status
                FROM audit_offers f JOIN audit_orders o USING (order_id)
                WHERE f.state = 'offered' AND (o.status <> 'DISPATCHING' OR o.held_for_review)",
    },
    HistoryInvariant {
        name: "one_live_booking_per_order",
        meaning: "an order has at most one live booking",
        query: "SELECT order_id, count(*) || ' live bookings' FROM audit_bookings
                WHERE state IN ('intent', 'unknown', 'booked') GROUP BY order_id HAVING count(*) > 1",
    },
    HistoryInvariant {
        name: "live_bookings_only_while_wanted",
        meaning: "a booking is live only while its order needs it",
        query: "SELECT b.order_id, 'the booking of attempt ' || b.attempt_no || ' is ' || b.state || ' while the order is '
                       || o.status
                FROM audit_bookings b JOIN audit_orders o USING (order_id)
                WHERE b.state IN ('intent', 'unknown', 'booked')
                  AND o.status NOT IN ('PENDING_JOB_ID', 'ASSIGNED', 'DRIVER_ASSIGNED', 'PICKED_UP')",
    },
    HistoryInvariant {
        name: "attempts_without_gap",
        meaning: "attempts are numbered 1, 2, 3, ... and each has an offer or a booking",
        query: include_str!("invariants/attempts_without_gap.sql"),
    },
    HistoryInvariant {
        name: "waves_of_one_attempt",
        meaning: "the offers of an attempt have one deadline, and a later wave asks later",
        query: include_str!("invariants/waves_of_one_attempt.sql"),
    },
    HistoryInvariant {
        name: "one_outcome_per_attempt",
        meaning: "every attempt has one outcome; only the latest attempt of a searching order may have none",
        query: include_str!("invariants/one_outcome_per_attempt.sql"),
    },
    HistoryInvariant {
        name: "ended_within_lifetime",
        meaning: "an order without a driver ends at most 30 s after its lifetime, unless it waits for a person",
        query: include_str!("invariants/ended_within_lifetime.sql"),
    },
    HistoryInvariant {
        name: "never_ended_early",
        meaning: "LIFETIME_TIMEOUT never comes before the end of the lifetime",
        query: "SELECT e.order_id, 'LIFETIME_TIMEOUT came ' || (o.lifetime_deadline - e.at) || ' early'
                FROM audit_events e JOIN audit_orders o USING (order_id)
                WHERE e.reason = 'LIFETIME_TIMEOUT' AND e.at < o.lifetime_deadline",
    },
    HistoryInvariant {
        name: "nothing_before_the_start",
        meaning: "a scheduled order has no offer, no booking and no attempt before its start",
        query: include_str!("invariants/nothing_before_the_start.sql"),
    },
    HistoryInvariant {
        name: "refund_alert_for_each_paid_cancel",
        meaning: "a cancelled order that was ever paid has exactly one refund alert per channel",
        query: "SELECT o.id, 'no refund alert' FROM orders o
                WHERE (o.status = 'CANCELLED_BY_SYSTEM_AFTER_PAYMENT'
                       OR (o.paid_at IS NOT NULL AND o.amount_minor IS DISTINCT FROM 0
                           AND o.status IN ('CANCELLED_BY_SYSTEM', 'CANCELLED_BY_USER', 'CANCELLED_BY_DRIVER')))
                  AND NOT EXISTS (SELECT 1 FROM audit_notifications n
                                  WHERE n.order_id = o.id AND n.kind = 'MANUAL_REFUND_REQUIRED')
                UNION ALL
                SELECT order_id, count(*) || ' refund alerts over ' || channel FROM audit_notifications
                WHERE kind = 'MANUAL_REFUND_REQUIRED' GROUP BY order_id, channel HAVING count(*) > 1",
    },
    HistoryInvariant {
        name: "payment_is_never_forgotten",
        meaning: "an order with a paid payment event or a paid payment status is recorded as paid",
        query: "SELECT o.order_id, 'has the payment status ' || o.payment_status || ' and was never paid'
                FROM audit_orders o WHERE o.paid_at IS NULL AND o.payment_status IN ('PAID', 'SETTLEMENT')
                UNION
                SELECT o.order_id, 'has the payment event ' || p.payment_status || ' and was never paid'
                FROM audit_orders o JOIN payment_events p USING (order_id)
                WHERE o.paid_at IS NULL AND p.payment_status IN ('PAID', 'SETTLEMENT')
                  -- a payment that is reported after the refund creates no debt
                  AND NOT EXISTS (SELECT 1 FROM audit_events e
                                  WHERE e.order_id = o.order_id AND e.reason = 'PAID_AFTER_REFUND')",
    },
    HistoryInvariant {
        name: "refund_alert_on_a_desk",
        meaning: "every refund alert can be acknowledged, or was",
        query: "SELECT DISTINCT n.order_id, 'its refund alert cannot be acknowledged' FROM audit_notifications n
                WHERE n.kind = 'MANUAL_REFUND_REQUIRED'
                  AND NOT EXISTS (SELECT 1 FROM alerts a WHERE a.order_id = n.order_id AND a.kind = n.kind)",
    },
    HistoryInvariant {
        name: "no_escalation_once_acknowledged",
        meaning: "an acknowledged alert sends no escalation or reminder",
        query: "SELECT a.order_id, m.kind || ' ' || m.dedupe_key || ' came after alert ' || a.id || ' was acknowledged'
                FROM outbox m JOIN alerts a ON a.id = (m.payload->>'alert_id')::bigint
                WHERE m.kind IN ('ESCALATION', 'REMINDER', 'SLA_WARNING') AND m.created_at > a.acked_at",
    },
    HistoryInvariant {
        name: "readable_in_feed",
        meaning: "each step of the feed has at most the position of a step written now, so readers reach it",
        query: "SELECT order_id, kind || ' ' || seq || ' is at position ' || position || ', and a step written now is at '
                       || dispatchq_feed_position()
                FROM order_feed WHERE position > dispatchq_feed_position() ORDER BY position, seq",
    },
    HistoryInvariant {
        name: "no_refund_alert_without_payment",
        meaning: "only an order that was paid and cancelled has a refund alert",
        query: "SELECT o.order_id, 'refund alert though ' || o.status || ' and ' || o.payment_status
                FROM audit_orders o JOIN audit_notifications n USING (order_id)
                WHERE n.kind = 'MANUAL_REFUND_REQUIRED'
                  -- later payment statuses of the provider, such as REFUNDED, are no contradiction
                  AND (o.payment_status IN ('UNPAID', 'PENDING') OR o.paid_at IS NULL
                       OR o.status NOT IN ('CANCELLED_BY_SYSTEM_AFTER_PAYMENT', 'CANCELLED_BY_USER',
                                           'CANCELLED_BY_DRIVER', 'REFUND_PENDING', 'REFUNDED'))",
    },
];

/// Transitions that the code allows. `$1` is the list of [`allowed_transitions`].
pub const LEGAL_TRANSITIONS: HistoryInvariant = HistoryInvariant {
    name: "legal_transitions",
    meaning: "every transition is in the table of docs/STATES.md",
    query: include_str!("invariants/legal_transitions.sql"),
};

pub(super) async fn check_invariants(db: &Pool) -> Result<Vec<InvariantViolation>, sqlx::Error> {
    let transitions = sqlx::query_as(LEGAL_TRANSITIONS.query).bind(allowed_transitions());
    let mut violations: Vec<_> = LEGAL_TRANSITIONS.name_violations(transitions.fetch_all(db).await?).collect();
    for invariant in INVARIANTS {
        let rows: Vec<(String, String)> = sqlx::query_as(invariant.query).fetch_all(db).await?;
        violations.extend(invariant.name_violations(rows));
    }
    Ok(violations)
}

/// Returns each transition that the code allows, as `DISPATCHING -> PENDING` or `nothing -> DISPATCHING`.
pub(crate) fn allowed_transitions() -> Vec<String> {
    let starts = [None].into_iter().chain(OrderStatus::ALL.map(Some));
    let pairs = starts.flat_map(|from| OrderStatus::ALL.map(|to| (from, to)));
    let allowed = pairs.filter(|(from, to)| state::is_transition_allowed(*from, *to));
    allowed.map(|(from, to)| format!("{} -> {to}", from.map_or("nothing", OrderStatus::as_str))).collect()
}
