-- Several drivers may be asked for one order at once, one driver for several orders, and a ranking explains itself.

-- First, as running programs lock them: orders, then offers.
-- Drivers who gave an order back, or from whom it was taken, are not asked for it again.
ALTER TABLE orders ADD COLUMN former_drivers text[] NOT NULL DEFAULT '{}';

ALTER TABLE offers
    ADD COLUMN rank  integer CHECK (rank >= 1),
    ADD COLUMN score double precision,
    ADD COLUMN slot  smallint NOT NULL DEFAULT 1 CHECK (slot >= 1);
COMMENT ON COLUMN offers.rank IS 'place among those who could be asked, from 1';
COMMENT ON COLUMN offers.score IS 'what the place follows from, the smallest first: metres, and what idle time and load count for in metres';
COMMENT ON COLUMN offers.slot IS 'a driver has as many slots as live offers at a time: their uniqueness is the cap';
COMMENT ON COLUMN offers.reason IS 'why it ended as it did, where somebody said';

DROP INDEX offers_one_live_per_driver;
CREATE UNIQUE INDEX offers_live_by_driver ON offers (driver_id, slot) WHERE state = 'offered';
-- Who has just said no, or nothing.
CREATE INDEX offers_unwanted ON offers (driver_id, responded_at) WHERE state IN ('declined', 'expired');

ALTER TABLE drivers ADD COLUMN phone text CHECK (phone ~ '^\+[1-9][0-9]{6,14}$');
COMMENT ON COLUMN drivers.phone IS 'E.164, for offers by voice call; never logged';

-- Who was looked at for an attempt, and why each came where.
CREATE TABLE rankings (
    order_id   text NOT NULL REFERENCES orders (id) ON DELETE CASCADE,
    attempt_no integer NOT NULL,
    at         timestamptz(3) NOT NULL,
    candidates jsonb NOT NULL,
    PRIMARY KEY (order_id, attempt_no)
);
-- Small, for retention: rows lie in the order of their age.
CREATE INDEX rankings_by_age ON rankings USING brin (at);
COMMENT ON TABLE rankings IS 'the latest search for each attempt, also one that found nobody';

-- Callbacks of phone calls name the message.
CREATE INDEX outbox_offers_by_message ON outbox (message_id) WHERE kind = 'OFFER';
