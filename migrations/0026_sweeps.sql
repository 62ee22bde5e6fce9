-- An index for each sweep of cleanup, and for each look at what waits. B-trees and not BRIN: rows are removed in the order
-- of their age, and new ones take their places, so that after a while each BRIN range reaches from the oldest row to the
-- newest. None names a column that changes while an order is dispatched.

-- Closed orders that may go. Not those whose money is still to go back; a new status is not among them by accident.
CREATE INDEX orders_removable ON orders (closed_at, id)
    WHERE status IN ('COMPLETED', 'CANCELLED_BY_SYSTEM', 'REFUNDED')
       OR (status IN ('CANCELLED_BY_USER', 'CANCELLED_BY_DRIVER') AND payment_status NOT IN ('PAID', 'SETTLEMENT'));
CREATE INDEX orders_held ON orders (id) WHERE held_for_review;

-- Offers, and messages about an order that may never have been. Others go with their order.
CREATE INDEX outbox_removable ON outbox (created_at)
    WHERE kind IN ('OFFER', 'FAILED_TO_GET_ORDER') AND state <> 'pending';
DROP INDEX outbox_by_age;
CREATE INDEX outbox_pending_by_age ON outbox (created_at) WHERE state = 'pending';
CREATE INDEX outbox_pending_by_id ON outbox (id) WHERE state = 'pending';

CREATE INDEX alerts_removable ON alerts (raised_at) WHERE kind = 'FAILED_TO_GET_ORDER' AND acked_at IS NOT NULL;
DROP INDEX alerts_by_age;

DROP INDEX rankings_by_age;
CREATE INDEX rankings_by_age ON rankings (at);

DROP INDEX inbox_by_age;
CREATE INDEX inbox_unmatched_by_age ON inbox (received_at) WHERE state = 'unmatched';

CREATE INDEX admission_audit_by_age ON admission_audit (at);
CREATE INDEX schedule_runs_by_age ON schedule_runs (slot);
CREATE INDEX dead_letters_unresolved_by_age ON dead_letters (died_at) WHERE resolved_at IS NULL;
