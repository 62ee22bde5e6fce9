-- Orders whose money is to go back and whose refund nobody has begun: few among millions, and counted at every scrape.
-- No order changes these columns while it is dispatched, so its updates stay HOT.
CREATE INDEX orders_to_refund ON orders (id)
    WHERE status = 'CANCELLED_BY_SYSTEM_AFTER_PAYMENT'
       OR (status IN ('CANCELLED_BY_USER', 'CANCELLED_BY_DRIVER') AND payment_status IN ('PAID', 'SETTLEMENT'));
