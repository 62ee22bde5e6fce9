-- remove old transactions
WITH seen AS MATERIALIZED (
    SELECT started_at, trx_id, binding_id, cycle, status FROM transactions
    WHERE started_at < $1 AND (started_at, trx_id) > ($3, $4)
    ORDER BY started_at, trx_id LIMIT $2),
ranked AS (
    SELECT s.binding_id, s.cycle, row_number() OVER prefix AS n,
           bool_and(s.status IN ('SUKSES', 'GAGAL') AND (b.cycle > s.cycle OR b.deleted_at IS NOT NULL))
               OVER prefix AS may_go
    FROM seen s JOIN bindings b ON b.id = s.binding_id
    WINDOW prefix AS (PARTITION BY s.binding_id ORDER BY s.cycle)),
old AS MATERIALIZED (
    SELECT r.binding_id, r.cycle FROM ranked r LEFT JOIN binding_watermarks w ON w.binding_id = r.binding_id
    WHERE r.may_go AND r.cycle = coalesce(w.removed_through, 0) + r.n),
c AS (DELETE FROM transaction_snapshots s USING old
      WHERE s.binding_id = old.binding_id AND s.cycle = old.cycle RETURNING s.binding_id, s.part),
t AS (DELETE FROM transactions t USING old
      WHERE t.binding_id = old.binding_id AND t.cycle = old.cycle RETURNING t.binding_id, t.cycle),
w AS (INSERT INTO binding_watermarks AS w (binding_id, removed_through, calls_removed, updated_at)
      SELECT t.binding_id, max(t.cycle),
             (SELECT count(*) FROM c WHERE c.binding_id = t.binding_id AND c.part = 'claim'), dispatchq_now()
      FROM t GROUP BY t.binding_id
      ON CONFLICT (binding_id) DO UPDATE
          SET removed_through = greatest(w.removed_through, EXCLUDED.removed_through),
              calls_removed = w.calls_removed + EXCLUDED.calls_removed, updated_at = EXCLUDED.updated_at)
SELECT (SELECT count(*) FROM t), started_at, trx_id FROM seen ORDER BY started_at DESC, trx_id DESC LIMIT 1
