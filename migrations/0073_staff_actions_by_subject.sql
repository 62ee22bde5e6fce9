-- no-transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS staff_actions_by_order ON staff_actions
    ((CASE WHEN strpos(subject, ':') > 0 THEN split_part(subject, ':', 2) ELSE subject END));
