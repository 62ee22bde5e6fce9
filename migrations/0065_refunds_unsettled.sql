-- no-transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS orders_refunds_unsettled ON orders (closed_at, id) WHERE status IN ('CANCELLED_BY_SYSTEM_AFTER_PAYMENT', 'REFUND_PENDING') OR (status IN ('CANCELLED_BY_USER', 'CANCELLED_BY_DRIVER') AND paid_at IS NOT NULL);
