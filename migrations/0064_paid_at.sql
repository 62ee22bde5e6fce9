-- "Was ever paid" as one fact: no payment word that follows removes it. Refunds, their alerts and the checker read it.
ALTER TABLE orders ADD COLUMN paid_at timestamptz(3);
COMMENT ON COLUMN orders.paid_at IS 'when the order was first reported as paid, whatever was reported since; null: never';

-- One place decides it, for every program that writes an order: this version, the version before, which does not know the column,
-- and producers in SQL.
CREATE FUNCTION dispatchq_keep_paid_at() RETURNS trigger
    LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND (OLD.paid_at IS NOT NULL OR OLD.payment_status IN ('PAID', 'SETTLEMENT')) THEN
        NEW.paid_at := coalesce(OLD.paid_at, NEW.paid_at, NEW.updated_at);
    ELSIF NEW.payment_status IN ('PAID', 'SETTLEMENT') THEN
        NEW.paid_at := coalesce(NEW.paid_at, NEW.updated_at);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER keep_paid_at_of_new BEFORE INSERT ON orders
    FOR EACH ROW WHEN (NEW.paid_at IS NULL AND NEW.payment_status IN ('PAID', 'SETTLEMENT'))
    EXECUTE FUNCTION dispatchq_keep_paid_at();
CREATE TRIGGER keep_paid_at BEFORE UPDATE ON orders
    FOR EACH ROW WHEN (NEW.paid_at IS DISTINCT FROM OLD.paid_at
                       OR (NEW.paid_at IS NULL AND NEW.payment_status IN ('PAID', 'SETTLEMENT')))
    EXECUTE FUNCTION dispatchq_keep_paid_at();

-- Rides that were completed owe nothing: their rows, which are most, are not rewritten. The trigger fills them at their next change.
UPDATE orders o
SET paid_at = coalesce((SELECT min(p.received_at) FROM payment_events p
                        WHERE p.order_id = o.id AND p.payment_status IN ('PAID', 'SETTLEMENT')), o.created_at)
WHERE o.status <> 'COMPLETED'
  AND (o.payment_status IN ('PAID', 'SETTLEMENT')
       OR EXISTS (SELECT 1 FROM payment_events p
                  WHERE p.order_id = o.id AND p.payment_status IN ('PAID', 'SETTLEMENT')));

CREATE OR REPLACE VIEW audit_orders AS
    SELECT id AS order_id, service_type, area_id, status, payment_status, driver_id, held_for_review,
           created_at, lifetime_deadline, closed_at, paid_at
    FROM orders;

ALTER TABLE refunds ADD COLUMN other_refund_id text CHECK (octet_length(other_refund_id) BETWEEN 1 AND 128);
COMMENT ON COLUMN refunds.other_refund_id IS 'latest refund id of a callback that is not the one the service returned';
