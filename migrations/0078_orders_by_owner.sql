-- no-transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS orders_by_owner ON orders (owner, created_at, id) WHERE owner IS NOT NULL;
