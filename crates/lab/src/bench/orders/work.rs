//! Work of Postgres per order, in figures.

use serde_json::{Map, Value, json};
use servers::{StatementWork, TableWork, WorkCounts};

use crate::bench::spread::round_to_digits;

/// Tables and statements with fewer than this many rows or calls per order belong to periodic work and are left out.
const LEAST: f64 = 0.05;

/// Returns `work_per_order`, `rows_per_order` and `statements_per_order`.
pub(super) fn figures_per_order(work: &WorkCounts, orders: u64) -> Value {
    let per_order = |count: u64| round_to_digits(count as f64 / orders.max(1) as f64, 2);
    let of_table = |(name, t): (&String, &TableWork)| {
        let figures = json!({
            "inserts": per_order(t.inserts), "updates": per_order(t.updates), "hot_updates": per_order(t.hot_updates),
            "deletes": per_order(t.deletes), "locks": per_order(t.locks), "index_entries": per_order(t.index_entries), "wal_bytes": per_order(t.wal_bytes),
        });
        (per_order(t.row_versions() + t.deletes) >= LEAST).then(|| (name.clone(), figures))
    };
    let of_statement = |(name, s): (&String, &StatementWork)| {
        let figures = json!({ "calls": per_order(s.calls), "plans": per_order(s.plans), "texts": s.texts });
        (per_order(s.calls) >= LEAST).then(|| (name.clone(), figures))
    };
    json!({
        "work_per_order": {
            "statements": per_order(work.statements.values().map(|s| s.calls).sum()),
            "commits": per_order(work.commits),
            "row_versions": per_order(work.tables.values().map(|t| t.row_versions()).sum()),
            "index_entries": per_order(work.tables.values().map(|t| t.index_entries).sum()),
            "wal_bytes": per_order(work.wal_bytes),
            "full_page_bytes": per_order(work.full_page_bytes),
        },
        "rows_per_order": work.tables.iter().filter_map(of_table).collect::<Map<_, _>>(),
        "statements_per_order": work.statements.iter().filter_map(of_statement).collect::<Map<_, _>>(),
    })
}
