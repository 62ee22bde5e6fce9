-- no-transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS staff_actions_by_subject ON staff_actions (subject);
