//! Invariants of bindings, each with its query in SQL. Each returned row is a violation.
//!
//! If retention has removed cycles of a binding, only the cycles above its watermark are checked. The order of
//! decisions comes from Postgres' clock. Two clocks may differ by 50 ms: those of workers, which give the times of open
//! calls, and those of a Postgres primary and its replica. Earlier values of a limit are not stored. The limit of a
//! server is therefore checked only for calls since the last change of its row. The limit of all servers is a
//! parameter.

use super::{InvariantViolation, invariants::HistoryInvariant};
use foundation::db::Pool;

/// Names, meanings and queries. `$1` is the maximum number of open calls in total.
pub const BINDING_INVARIANTS: [HistoryInvariant; 9] = [
    HistoryInvariant {
        name: "cycles_without_gap",
        meaning: "cycles of a binding are numbered 1, 2, 3, ... and each has its header",
        query: "SELECT binding_id, 'cycle ' || cycle || ' follows cycle ' || before
                FROM (SELECT t.binding_id, t.cycle,
                             lag(t.cycle, 1, b.removed_through) OVER (PARTITION BY t.binding_id ORDER BY t.cycle) AS before
                      FROM audit_transactions t JOIN audit_bindings b USING (binding_id)
                      WHERE t.cycle > b.removed_through) c
                WHERE cycle <> before + 1
                UNION ALL
                SELECT b.binding_id, 'has started ' || b.cycle || ' cycles and the last header is of cycle ' || last
                FROM audit_bindings b
                CROSS JOIN LATERAL (SELECT greatest(coalesce(max(t.cycle), 0), b.removed_through) AS last
                                    FROM audit_transactions t WHERE t.binding_id = b.binding_id) t
                WHERE last <> b.cycle
                UNION ALL
                SELECT DISTINCT t.binding_id, 'has transactions but is not a binding' FROM audit_transactions t
                WHERE NOT EXISTS (SELECT 1 FROM audit_bindings b WHERE b.binding_id = t.binding_id)",
    },
    HistoryInvariant {
        name: "calls_without_gap",
        meaning: "calls of a binding are numbered 1, 2, 3, ... and each has its record",
        query: "SELECT b.binding_id, 'has claimed ' || b.call_no || ' calls: ' || b.calls_removed || ' were removed and '
                       || coalesce(c.calls, 0) || ' are left, the last is ' || coalesce(c.last, 0)
                FROM audit_bindings b
                LEFT JOIN (SELECT binding_id, count(DISTINCT call_no) AS calls, max(call_no) AS last
                           FROM audit_provider_calls WHERE part = 'claim' GROUP BY binding_id) c USING (binding_id)
                WHERE coalesce(c.calls, 0) + b.calls_removed <> b.call_no OR coalesce(c.last, 0) > b.call_no",
    },
    HistoryInvariant {
        name: "a_record_of_each_call",
        meaning: "each transaction has a call, and each call has an end, except for an open call",
        query: "SELECT t.binding_id, t.trx_id || ' has no call' FROM audit_transactions t
                WHERE NOT EXISTS (SELECT 1 FROM audit_provider_calls c
                                  WHERE c.binding_id = t.binding_id AND c.cycle = t.cycle AND c.part = 'claim')
                UNION ALL
                SELECT c.binding_id, 'call ' || c.call_no || ' of cycle ' || c.cycle || ' has no end'
                FROM audit_provider_calls c LEFT JOIN audit_bindings b USING (binding_id)
                WHERE c.part = 'claim' AND (b.phase = 'CALLING' AND b.call_no = c.call_no) IS NOT TRUE
                  AND NOT EXISTS (SELECT 1 FROM audit_provider_calls e
                                  WHERE e.binding_id = c.binding_id AND e.cycle = c.cycle AND e.call_no = c.call_no
                                    AND e.part = 'end')
                UNION ALL
                SELECT e.binding_id, 'call ' || e.call_no || ' of cycle ' || e.cycle || ' has an end but no claim'
                FROM audit_provider_calls e
                WHERE e.part = 'end'
                  AND NOT EXISTS (SELECT 1 FROM audit_provider_calls c
                                  WHERE c.binding_id = e.binding_id AND c.cycle = e.cycle AND c.call_no = e.call_no
                                    AND c.part = 'claim')",
    },
    HistoryInvariant {
        name: "one_open_call_per_binding",
        meaning: "a binding's call is claimed only after the previous one has ended or expired, with 50 ms tolerance",
        query: "SELECT binding_id, 'call ' || call_no || ' was claimed ' || (until - at) || ' before call ' || before || ' had ended'
                FROM (SELECT c.binding_id, c.call_no, c.at, lag(c.call_no) OVER calls AS before,
                             lag(coalesce(e.at, c.call_until)) OVER calls AS until
                      FROM audit_provider_calls c
                      LEFT JOIN audit_provider_calls e
                          ON e.binding_id = c.binding_id AND e.cycle = c.cycle AND e.call_no = c.call_no AND e.part = 'end'
                      WHERE c.part = 'claim'
                      WINDOW calls AS (PARTITION BY c.binding_id ORDER BY c.call_no)) c
                WHERE at < until - interval '50 milliseconds'",
    },
    HistoryInvariant {
        name: "only_the_newest_cycle_is_open",
        meaning: "a transaction is open while it is its binding's current one, and final or UNRESOLVED afterwards",
        query: "SELECT t.binding_id, t.trx_id || ' is ' || t.status || ' while its binding is ' || b.phase || ' in cycle ' || b.cycle
                FROM audit_transactions t JOIN audit_bindings b USING (binding_id)
                WHERE (t.status NOT IN ('SUKSES', 'GAGAL', 'UNRESOLVED'))
                      <> (t.cycle = b.cycle AND b.phase <> 'IDLE' AND b.call_action IS DISTINCT FROM 'settle')",
    },
    HistoryInvariant {
        name: "unresolved_are_counted",
        meaning: "a binding's row has the number of its UNRESOLVED transactions",
        query: "SELECT b.binding_id, 'counts ' || b.unresolved || ' UNRESOLVED transactions and has ' || coalesce(t.n, 0)
                FROM audit_bindings b
                LEFT JOIN (SELECT binding_id, count(*) AS n FROM audit_transactions WHERE status = 'UNRESOLVED'
                           GROUP BY binding_id) t USING (binding_id)
                WHERE b.unresolved <> coalesce(t.n, 0)",
    },
    // A lost or rejected call has no outcome and is repeated with the same key. Other results are outcomes.
    HistoryInvariant {
        name: "an_otp_is_used_once",
        meaning: "an OTP has one outcome and is then erased; a transaction has at most the allowed number of OTPs",
        query: "WITH tries AS (
                    SELECT c.binding_id, c.cycle, c.call_no, c.at, e.at AS ended_at,
                           e.result NOT IN ('lost', 'late_refused', 'throttled', 'unavailable', 'unreachable') AS has_outcome
                    FROM audit_provider_calls c
                    LEFT JOIN audit_provider_calls e
                        ON e.binding_id = c.binding_id AND e.cycle = c.cycle AND e.call_no = c.call_no AND e.part = 'end'
                    WHERE c.part = 'claim' AND c.action = 'otp')
                SELECT a.binding_id, 'call ' || b.call_no || ' of cycle ' || a.cycle || ' sends the OTP that call ' || a.call_no
                       || ' had used up'
                FROM tries a
                CROSS JOIN LATERAL (SELECT call_no, at FROM tries b
                                    WHERE b.binding_id = a.binding_id AND b.cycle = a.cycle AND b.call_no > a.call_no
                                    ORDER BY b.call_no LIMIT 1) b
                WHERE a.has_outcome
                  AND NOT EXISTS (SELECT 1 FROM audit_binding_events s
                                  WHERE s.binding_id = a.binding_id AND s.kind = 'otp_submitted'
                                    AND s.at BETWEEN a.ended_at AND b.at)
                  -- only as far back as the binding's history
                  AND EXISTS (SELECT 1 FROM audit_binding_events s WHERE s.binding_id = a.binding_id AND s.at <= a.ended_at)
                UNION ALL
                SELECT t.binding_id, count(*) || ' OTPs of cycle ' || t.cycle || ' had an outcome, of ' || max(b.otp_attempts)
                FROM tries t JOIN audit_bindings b USING (binding_id)
                WHERE t.has_outcome
                GROUP BY t.binding_id, t.cycle
                -- the allowed number may have been reduced since
                HAVING count(*) > max(b.otp_attempts)
                   AND (count(*) > 10 OR NOT EXISTS (SELECT 1 FROM audit_binding_events p WHERE p.binding_id = t.binding_id
                                                     AND p.kind = 'patched' AND p.at >= max(t.ended_at)))
                UNION ALL
                SELECT binding_id, 'keeps an OTP while ' || phase FROM audit_bindings
                WHERE otp_stored AND phase <> 'WAITING_OTP' AND call_action IS DISTINCT FROM 'otp'",
    },
    // For equal times, a start counts as before a cycle, and a stop as after it.
    HistoryInvariant {
        name: "no_cycle_while_stopped",
        meaning: "no cycle starts between a stop or pause and the next start or resume",
        query: "SELECT binding_id, 'cycle ' || cycle || ' began after event ' || greatest(stopped, paused)
                FROM (SELECT binding_id, cycle,
                             coalesce(max(seq) FILTER (WHERE kind = 'started') OVER so_far, 0) AS started,
                             coalesce(max(seq) FILTER (WHERE kind = 'resumed') OVER so_far, 0) AS resumed,
                             max(seq) FILTER (WHERE kind = 'paused') OVER so_far AS paused,
                             max(seq) FILTER (WHERE kind IN ('stopping', 'stopped')) OVER so_far AS stopped
                      FROM (SELECT binding_id, at, NULL AS cycle, seq, kind,
                                   CASE WHEN kind IN ('started', 'resumed') THEN 0 ELSE 2 END AS rank
                            FROM audit_binding_events
                            WHERE kind IN ('started', 'resumed', 'paused', 'stopping', 'stopped')
                            UNION ALL
                            SELECT binding_id, started_at, cycle, NULL, 'began', 1 FROM audit_transactions) e
                      WINDOW so_far AS (PARTITION BY binding_id ORDER BY at, rank, seq)) e
                WHERE cycle IS NOT NULL AND (stopped > started OR paused > greatest(started, resumed))",
    },
    // Only ended calls that were sent after the last change of the server, because earlier limits are not stored.
    HistoryInvariant {
        name: "calls_within_limits",
        meaning: "the open calls never exceeded the limit of a server or of all, with 50 ms tolerance for workers' clocks",
        query: "WITH open AS (
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
                WHERE calls > most GROUP BY server_id",
    },
];

/// Runs all queries with this maximum number of open calls in total.
pub async fn check_binding_invariants(db: &Pool, max_calls: u32) -> Result<Vec<InvariantViolation>, sqlx::Error> {
    let mut violations = Vec::new();
    for invariant in BINDING_INVARIANTS {
        let question = sqlx::query_as::<sqlx::Postgres, (String, String)>(invariant.query);
        let question = if invariant.query.contains("$1") { question.bind(i64::from(max_calls)) } else { question };
        violations.extend(invariant.name_violations(question.fetch_all(db).await?));
    }
    Ok(violations)
}
