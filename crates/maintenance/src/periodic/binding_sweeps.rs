//! Sweeps of the tables of bindings: statements that remove rows after their retention time.

use super::sweeps::TableSweep;

/// All sweeps; public for tests of their query plans.
pub const BINDING_SWEEPS: [&TableSweep; 5] =
    [&TRANSACTIONS, &DELETED_BINDINGS, &BINDING_EVENTS, &BINDING_MESSAGES, &BINDING_ALERTS];

// Removes a prefix of each binding's cycles: the lowest remaining cycle and the following ones without a gap, as long
// as they are final and not the newest. A gap is therefore never hidden, and the remaining cycles start after the
// watermark. Concurrent cleanups remove each row once, and each counts only the rows that it removed.
pub(super) const TRANSACTIONS: TableSweep = TableSweep {
    what: "transactions",
    count: "-- count old transactions
            WITH seen AS MATERIALIZED (
                SELECT started_at, trx_id, binding_id, cycle, status FROM transactions
                WHERE started_at < $1 AND (started_at, trx_id) > ($3, $4)
                ORDER BY started_at, trx_id LIMIT $2),
            old AS (
                SELECT 1 FROM seen s JOIN bindings b ON b.id = s.binding_id
                WHERE s.status IN ('SUKSES', 'GAGAL') AND (b.cycle > s.cycle OR b.deleted_at IS NOT NULL)
                  AND NOT EXISTS (SELECT 1 FROM transactions t
                                  WHERE t.binding_id = s.binding_id AND t.cycle < s.cycle AND t.settle_at IS NOT NULL))
            SELECT (SELECT count(*) FROM old), started_at, trx_id FROM seen ORDER BY started_at DESC, trx_id DESC LIMIT 1",
    remove: include_str!("sweeps/remove_transactions.sql"),
};

// After the removal, the id can be used again. Cycles count from 1, so all counted rows of the old binding must be gone
// first. A message or alert of the old binding must not be mistaken for one of the new binding. Each deleted binding
// costs one index lookup in the transactions.
pub(super) const DELETED_BINDINGS: TableSweep = TableSweep {
    what: "deleted bindings",
    count: "-- count old deleted bindings
            SELECT count(*) FROM bindings b
            WHERE deleted_at < $1 AND (SELECT t.cycle FROM transactions t WHERE t.binding_id = b.id LIMIT 1) IS NULL",
    remove: "-- remove old deleted bindings
             WITH old AS MATERIALIZED (
                 SELECT id FROM bindings b
                 WHERE deleted_at < $1 AND (SELECT t.cycle FROM transactions t WHERE t.binding_id = b.id LIMIT 1) IS NULL
                 ORDER BY deleted_at LIMIT $2),
             w AS (DELETE FROM binding_watermarks WHERE binding_id IN (SELECT id FROM old)),
             m AS (DELETE FROM outbox WHERE binding_id IN (SELECT id FROM old)),
             a AS (DELETE FROM alerts WHERE binding_id IN (SELECT id FROM old))
             DELETE FROM bindings WHERE id IN (SELECT id FROM old)",
};

pub(super) const BINDING_EVENTS: TableSweep = TableSweep {
    what: "events of bindings",
    count: "-- count old events of bindings
            SELECT count(*) FROM binding_events WHERE at < $1",
    remove: "-- remove old events of bindings
             DELETE FROM binding_events WHERE seq IN (
                 SELECT seq FROM binding_events WHERE at < $1 ORDER BY at, seq LIMIT $2)",
};

// Removed by age, even while the binding exists, because a binding may exist for years.
pub(super) const BINDING_MESSAGES: TableSweep = TableSweep {
    what: "messages about bindings",
    count: "-- count old messages about bindings
            SELECT count(*) FROM outbox WHERE binding_id IS NOT NULL AND state <> 'pending' AND created_at < $1",
    remove: "-- remove old messages about bindings
             DELETE FROM outbox WHERE id IN (
                 SELECT id FROM outbox WHERE binding_id IS NOT NULL AND state <> 'pending' AND created_at < $1
                 ORDER BY created_at LIMIT $2)",
};

// Removed only after their acknowledgement. An open alert still needs a person.
pub(super) const BINDING_ALERTS: TableSweep = TableSweep {
    what: "alerts about bindings",
    count: "-- count old alerts about bindings
            SELECT count(*) FROM alerts WHERE binding_id IS NOT NULL AND acked_at IS NOT NULL AND raised_at < $1",
    remove: "-- remove old alerts about bindings
             DELETE FROM alerts WHERE id IN (
                 SELECT id FROM alerts WHERE binding_id IS NOT NULL AND acked_at IS NOT NULL AND raised_at < $1
                 ORDER BY raised_at LIMIT $2)",
};
