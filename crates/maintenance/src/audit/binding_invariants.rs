//! Invariants of bindings, each with its query in SQL. Each returned row is a violation.
//!
//! If retention has removed cycles of a binding, only the cycles above its watermark are checked. The order of
//! decisions comes from Postgres' clock. A difference of 50 ms is tolerated between the clocks of two workers, which
//! give the times of open calls, and between those of a Postgres primary and its replica. Earlier values of a limit are
//! not stored. The limit of a server is therefore checked only for calls since the last change of its row. The limit of
//! all servers together is a parameter.

use super::{InvariantViolation, invariants::HistoryInvariant};
use foundation::db::Pool;

/// Names, meanings and queries. `$1` is the maximum number of open calls in total.
pub const BINDING_INVARIANTS: [HistoryInvariant; 9] = [
    HistoryInvariant {
        name: "cycles_without_gap",
        meaning: "cycles of a binding are numbered 1, 2, 3, ... and each has its header",
        query: include_str!("invariants/cycles_without_gap.sql"),
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
        query: include_str!("invariants/a_record_of_each_call.sql"),
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
        query: include_str!("invariants/an_otp_is_used_once.sql"),
    },
    // For equal times, a start counts as before a cycle, and a stop as after it.
    HistoryInvariant {
        name: "no_cycle_while_stopped",
        meaning: "no cycle starts between a stop or pause and the next start or resume",
        query: include_str!("invariants/no_cycle_while_stopped.sql"),
    },
    // Only ended calls that were sent after the last change of the server, because earlier limits are not stored.
    HistoryInvariant {
        name: "calls_within_limits",
        meaning: "the open calls never exceeded the limit of a server or of all, with 50 ms tolerance for workers' clocks",
        query: include_str!("invariants/calls_within_limits.sql"),
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
