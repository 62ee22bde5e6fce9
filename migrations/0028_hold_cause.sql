-- Why an order is under review, as a value: {"kind": "dead_timer", "job": "dispatch:ORD-1:1"}. The reason beside it is for people.
-- Without a default, so that no row is rewritten: null of orders that a version before this one holds.
ALTER TABLE orders ADD COLUMN hold_cause jsonb;
COMMENT ON COLUMN orders.hold_cause IS 'why held_for_review, for programs; null: not held, or held by a version before 0028, whose held_reason says it';

-- A program of the version before does not know the column. When it ends a review, or begins another, the cause of the one
-- before must not outlive it.
CREATE FUNCTION dispatchq_forget_hold_cause() RETURNS trigger
    LANGUAGE plpgsql AS $$
BEGIN
    NEW.hold_cause := NULL;
    RETURN NEW;
END $$;
CREATE TRIGGER forget_hold_cause BEFORE UPDATE OF held_reason ON orders
    FOR EACH ROW WHEN (OLD.hold_cause IS NOT NULL AND NEW.hold_cause = OLD.hold_cause
                       AND NEW.held_reason IS DISTINCT FROM OLD.held_reason)
    EXECUTE FUNCTION dispatchq_forget_hold_cause();
