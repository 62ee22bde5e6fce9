-- Results of the payment service are kept apart from how a refund was settled, and an erasure changes only records that name the driver.

-- A. Refunds. A person may settle a refund that the service pays as well.
ALTER TABLE refunds ADD COLUMN service_paid boolean NOT NULL DEFAULT false;
ALTER TABLE refunds ADD COLUMN service_failed boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN refunds.service_paid IS 'the service reported that it paid this refund; false where state is refunded: a person settled it';
COMMENT ON COLUMN refunds.service_failed IS 'the service reported that this refund failed';
-- All of them: callbacks that alternate between two ids are no news.
ALTER TABLE refunds ADD COLUMN other_refund_ids text[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN refunds.other_refund_ids IS 'refund ids of callbacks that are not the one the service returned';
UPDATE refunds SET other_refund_ids = ARRAY[other_refund_id] WHERE other_refund_id IS NOT NULL;
COMMENT ON COLUMN refunds.other_refund_id IS 'no longer written: see other_refund_ids';

-- B. Bookings. A job id may come for a booking that has ended, or after the lifetime of its order.
ALTER TABLE bookings ADD COLUMN assigned_at timestamptz(3);
COMMENT ON COLUMN bookings.assigned_at IS 'when the order became ASSIGNED by this booking; null: its job id did not come, or too late';
UPDATE bookings SET assigned_at = coalesce(booked_at, created_at) WHERE job_id IS NOT NULL;

-- C. Rights. As in 0070, and it changes no record that does not name the driver, whatever ids it is given.
CREATE OR REPLACE FUNCTION dispatchq_redact_staff_actions(ids bigint[], driver text, pseudonym text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    redacted bigint;
BEGIN
    IF NOT EXISTS (SELECT 1 FROM erasures e WHERE e.subject = 'driver' AND e.subject_id = driver) THEN
        RAISE EXCEPTION 'no erasure of this driver is recorded' USING ERRCODE = 'insufficient_privilege';
    END IF;
    UPDATE staff_actions s
    SET subject = CASE WHEN s.subject = driver OR right(s.subject, length(driver) + 1) = ' ' || driver
                       THEN left(s.subject, length(s.subject) - length(driver)) || pseudonym ELSE s.subject END,
        reason = NULL
    WHERE s.id = ANY (ids)
      AND (s.subject = driver OR right(s.subject, length(driver) + 1) = ' ' || driver OR strpos(s.reason, driver) > 0);
    GET DIAGNOSTICS redacted = ROW_COUNT;
    RETURN redacted;
END $$;
DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION dispatchq_redact_staff_actions(bigint[], text, text) SET search_path = pg_catalog, %I, pg_temp',
                   current_schema());
END $$;
