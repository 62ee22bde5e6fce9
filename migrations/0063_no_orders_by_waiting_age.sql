-- no-transaction
DROP INDEX CONCURRENTLY IF EXISTS orders_waiting_by_age;
