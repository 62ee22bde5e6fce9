-- Lists of orders look at no others.

-- Of one status, open or closed, the newest first.
CREATE INDEX orders_by_status ON orders (status, created_at, id);
-- No column in it changes while an order is open.
CREATE INDEX orders_open_by_service ON orders (service_type, created_at, id) WHERE closed_at IS NULL;
