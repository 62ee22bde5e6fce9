-- Orders are located where they are written: what creates one in SQL need not know areas, and is counted from its commit on.

-- Orders that Redis does not know of yet. A worker takes them out, within half a second.
CREATE TABLE uncounted_orders (
    order_id text PRIMARY KEY
);
COMMENT ON TABLE uncounted_orders IS 'orders created in SQL that are not in the waiting sets of Redis yet';

-- The API has located its orders, and taken their places: it says so for the time of its transaction.
CREATE FUNCTION dispatchq_is_located() RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT coalesce(current_setting('dispatchq.located', true), '') = 'on'
$$;

-- Where an order is counts more than what its producer calls the area. Its area's lifetime takes the place of the service
-- type's, not of one that the producer named.
CREATE FUNCTION dispatchq_locate_order() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    located text := dispatchq_area_at(NEW.pickup_lat, NEW.pickup_lng, NEW.service_type);
    usual interval;
    own interval;
BEGIN
    IF located IS NULL THEN
        RETURN NEW;
    END IF;
    NEW.area_id := located;
    SELECT make_interval(secs => l.order_lifetime_sec) INTO own
    FROM area_limits l WHERE l.area_id = located AND l.service_type = NEW.service_type;
    SELECT s.lifetime INTO usual FROM service_types s WHERE s.service_type = NEW.service_type;
    IF own IS NOT NULL AND NEW.lifetime_deadline = NEW.created_at + usual THEN
        NEW.lifetime_deadline := NEW.created_at + own;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER locate BEFORE INSERT ON orders FOR EACH ROW
    WHEN (NEW.closed_at IS NULL AND NOT dispatchq_is_located()) EXECUTE FUNCTION dispatchq_locate_order();

CREATE FUNCTION dispatchq_note_uncounted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO uncounted_orders (order_id) VALUES (NEW.id) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER uncounted AFTER INSERT ON orders FOR EACH ROW
    WHEN (NEW.closed_at IS NULL AND NEW.area_id IS NOT NULL AND NOT dispatchq_is_located())
    EXECUTE FUNCTION dispatchq_note_uncounted();
