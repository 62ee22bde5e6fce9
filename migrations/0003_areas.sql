-- Areas, their limits on waiting orders, and records of changes and refusals.

CREATE TABLE areas (
    id           text PRIMARY KEY CHECK (id ~ '^[A-Za-z0-9_-]{1,64}$'),
    name         text NOT NULL,
    priority     integer NOT NULL DEFAULT 0,
    geometry     jsonb,
    geohashes    text[] NOT NULL DEFAULT '{}',
    service_type text[] NOT NULL DEFAULT '{}',
    time_zone    text CHECK (octet_length(time_zone) BETWEEN 1 AND 64),
    version      bigint NOT NULL DEFAULT 1,
    updated_at   timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    CHECK (geometry IS NOT NULL OR cardinality(geohashes) > 0)
);
COMMENT ON COLUMN areas.priority IS 'the highest priority wins where areas overlap, such as an airport within its city';
COMMENT ON COLUMN areas.geometry IS 'GeoJSON Polygon or MultiPolygon; null: the area has only geohashes';
COMMENT ON COLUMN areas.service_type IS 'service types that the area applies to; empty: all';
COMMENT ON COLUMN areas.time_zone IS 'IANA name of the time zone of schedules, such as Asia/Jakarta; null: as configured';

-- Limits of a service type in an area. For a null value the configuration applies.
CREATE TABLE area_limits (
    area_id                 text NOT NULL REFERENCES areas (id) ON DELETE CASCADE,
    service_type            text NOT NULL,
    max_waiting_orders      bigint CHECK (max_waiting_orders BETWEEN 0 AND 1000000),
    schedule                jsonb,
    waiting_timeout_sec     bigint CHECK (waiting_timeout_sec BETWEEN 1 AND 604800),
    dispatch_timeout_sec    bigint CHECK (dispatch_timeout_sec BETWEEN 1 AND 86400),
    order_lifetime_sec      bigint CHECK (order_lifetime_sec BETWEEN 1 AND 604800),
    retry_interval_sec      bigint CHECK (retry_interval_sec BETWEEN 1 AND 86400),
    busy_retry_interval_sec bigint CHECK (busy_retry_interval_sec BETWEEN 1 AND 86400),
    cooldown_period_sec     bigint CHECK (cooldown_period_sec BETWEEN 0 AND 86400),
    low_water_percentage    integer CHECK (low_water_percentage BETWEEN 1 AND 100),
    bypass_enabled          boolean,
    bypass_loyalty_levels   text[],
    max_bypass_percentage   integer CHECK (max_bypass_percentage BETWEEN 0 AND 1000),
    max_scheduled_per_hour  bigint CHECK (max_scheduled_per_hour BETWEEN 0 AND 1000000),
    enabled                 boolean NOT NULL DEFAULT true,
    priority                integer NOT NULL DEFAULT 0,
    version                 bigint NOT NULL DEFAULT 1,
    updated_at              timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    PRIMARY KEY (area_id, service_type)
);
COMMENT ON COLUMN area_limits.schedule IS
    'thresholds by weekday and time of day; a threshold that applies now replaces max_waiting_orders; null: none';
COMMENT ON COLUMN area_limits.waiting_timeout_sec IS
    'seconds after its creation in which an order counts toward the threshold; null: its whole lifetime';
COMMENT ON COLUMN area_limits.max_scheduled_per_hour IS
    'scheduled orders with a pickup in the same hour of the area''s clock; null: no limit';
COMMENT ON COLUMN area_limits.priority IS
    'the highest priority wins for this service type where areas overlap, before the priority of the areas';

CREATE TABLE area_overrides (
    area_id    text PRIMARY KEY REFERENCES areas (id) ON DELETE CASCADE,
    status     text NOT NULL CHECK (status IN ('FORCE_BUSY', 'FORCE_AVAILABLE')),
    reason     text NOT NULL,
    expires_at timestamptz(3),
    actor      text NOT NULL,
    created_at timestamptz(3) NOT NULL DEFAULT dispatchq_now()
);
COMMENT ON TABLE area_overrides IS 'decisions of staff that open or close an area; no row: AUTO';

-- The flag: whether areas refuse orders, and for which areas, channels and share of users. It has one row.
CREATE TABLE admission_flag (
    one              boolean PRIMARY KEY DEFAULT true CHECK (one),
    enabled          boolean NOT NULL DEFAULT false,
    enabled_areas    text[] NOT NULL DEFAULT '{}',
    enabled_channels text[] NOT NULL DEFAULT '{}',
    percentage       integer NOT NULL DEFAULT 100 CHECK (percentage BETWEEN 0 AND 100),
    shadow_mode      boolean NOT NULL DEFAULT false,
    version          bigint NOT NULL DEFAULT 1,
    updated_at       timestamptz(3) NOT NULL DEFAULT dispatchq_now()
);
INSERT INTO admission_flag DEFAULT VALUES;
COMMENT ON COLUMN admission_flag.enabled_areas IS 'empty: all areas';
COMMENT ON COLUMN admission_flag.shadow_mode IS 'thresholds refuse no order; an order that a threshold would refuse is admitted and recorded';

-- Numbers of the latest changes. Processes read the four tables above again when `number` changes, and polygons when `areas`
-- changes.
CREATE TABLE admission_revision (
    one    boolean PRIMARY KEY DEFAULT true CHECK (one),
    number bigint NOT NULL DEFAULT 1,
    areas  bigint NOT NULL DEFAULT 1
);
INSERT INTO admission_revision DEFAULT VALUES;
CREATE FUNCTION dispatchq_admission_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE admission_revision SET number = number + 1;
    RETURN NULL;
END $$;
CREATE FUNCTION dispatchq_areas_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE admission_revision SET number = number + 1, areas = areas + 1;
    RETURN NULL;
END $$;
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON areas
    FOR EACH STATEMENT EXECUTE FUNCTION dispatchq_areas_changed();
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON area_limits
    FOR EACH STATEMENT EXECUTE FUNCTION dispatchq_admission_changed();
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON area_overrides
    FOR EACH STATEMENT EXECUTE FUNCTION dispatchq_admission_changed();
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON admission_flag
    FOR EACH STATEMENT EXECUTE FUNCTION dispatchq_admission_changed();

-- deploy/postgres/roles.sql revokes UPDATE and DELETE on this record from `dispatchq_run`.
CREATE TABLE admission_audit (
    id      bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    at      timestamptz(3) NOT NULL DEFAULT dispatchq_now(),
    actor   text NOT NULL,
    key_id  uuid,
    what    text NOT NULL,
    area_id text,
    before  jsonb,
    after   jsonb,
    reason  text
);
COMMENT ON TABLE admission_audit IS 'changes of areas, limits, overrides and the flag, with actor and reason';
CREATE INDEX admission_audit_by_area ON admission_audit (area_id, id);
CREATE INDEX admission_audit_by_age ON admission_audit (at);

-- Shapes of areas, with which SQL finds the area of a location. A trigger derives them from `areas`: for each polygon and each
-- geohash, one row for each square of a grid that its bounds touch. The unit is a millionth of a degree, because Postgres treats
-- coordinates that differ by less than a millionth of a unit as equal.
CREATE TABLE area_parts (
    -- Logical replication needs a primary key.
    id      bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    area_id text NOT NULL REFERENCES areas (id) ON DELETE CASCADE,
    square  bigint NOT NULL,
    bounds  box NOT NULL,
    outline polygon,
    holes   polygon[] NOT NULL DEFAULT '{}'
);
COMMENT ON COLUMN area_parts.square IS 'number of the square (dispatchq_square)';
COMMENT ON COLUMN area_parts.bounds IS 'x is the longitude, in millionths of a degree';
COMMENT ON COLUMN area_parts.outline IS 'null: the part is a geohash, and bounds is its cell';
CREATE INDEX area_parts_by_area ON area_parts (area_id);
CREATE INDEX area_parts_by_square ON area_parts (square);

-- Grids of which area_parts has squares. A location is searched in its square of each of them.
CREATE TABLE area_grids (
    grid integer PRIMARY KEY
);
COMMENT ON TABLE area_grids IS 'grids of area_parts; a grid that is no longer used may stay';

-- Nine grids divide the world into squares. A square of grid n has sides of 2^n millionths of a degree: 0.9 km at the equator for
-- n = 13, four times as much for each further grid, and one square is the whole world for n = 29. Returns the number of the square
-- that contains a location; x and y are millionths of a degree from the western and southern end of the world.
CREATE FUNCTION dispatchq_square(grid integer, x bigint, y bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT (grid::bigint << 40) + ((x >> grid) << 20) + (y >> grid)
$$;

-- Returns the squares that these bounds touch, in the finest grid with at most four columns and four rows of them. The bounds are
-- first extended by one unit, because Postgres also finds a location that is slightly outside.
CREATE FUNCTION dispatchq_squares_of(bounds box) RETURNS SETOF bigint
    LANGUAGE plpgsql IMMUTABLE ROWS 4 AS $$
DECLARE
    west bigint := greatest(floor((bounds[1])[0]) - 1 + 180000000, 0);
    east bigint := floor((bounds[0])[0]) + 1 + 180000000;
    south bigint := greatest(floor((bounds[1])[1]) - 1 + 90000000, 0);
    north bigint := floor((bounds[0])[1]) + 1 + 90000000;
    grid integer := 13;
BEGIN
    WHILE (east >> grid) - (west >> grid) > 3 OR (north >> grid) - (south >> grid) > 3 LOOP
        grid := grid + 2;
    END LOOP;
    RETURN QUERY SELECT dispatchq_square(grid, x << grid, y << grid)
                 FROM generate_series(west >> grid, east >> grid) AS x
                      CROSS JOIN generate_series(south >> grid, north >> grid) AS y;
END $$;

-- Returns whether a part of an area contains a location, in millionths of a degree. The cell of a geohash includes only its
-- western and southern borders.
CREATE FUNCTION dispatchq_covers(bounds box, outline polygon, holes polygon[], x float8, y float8) RETURNS boolean
    LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN outline IS NULL
                THEN x >= (bounds[1])[0] AND y >= (bounds[1])[1] AND x < (bounds[0])[0] AND y < (bounds[0])[1]
                ELSE bounds @> box(point(x, y)) AND outline @> point(x, y) AND NOT point(x, y) <@ ANY (holes) END
$$;

-- Converts a ring of GeoJSON to a polygon and moves it to the east by `shift` degrees. Fails if a corner is outside the range of
-- longitude and latitude.
CREATE FUNCTION dispatchq_ring(ring jsonb, shift float8) RETURNS polygon LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    corners text;
    wrong bigint;
BEGIN
    SELECT string_agg(format('(%s,%s)', ((c ->> 0)::float8 + shift) * 1e6, (c ->> 1)::float8 * 1e6), ',' ORDER BY n),
           count(*) FILTER (WHERE ((c ->> 0)::float8 BETWEEN -180 AND 180 AND (c ->> 1)::float8 BETWEEN -90 AND 90) IS NOT TRUE)
    INTO corners, wrong
    FROM jsonb_array_elements(ring) WITH ORDINALITY AS corner(c, n);
    IF wrong > 0 THEN
        RAISE EXCEPTION 'a corner is outside the range of longitude and latitude' USING ERRCODE = 'data_exception';
    END IF;
    RETURN format('(%s)', corners)::polygon;
END $$;

-- Returns the cell of a geohash prefix.
CREATE FUNCTION dispatchq_geohash_bounds(prefix text) RETURNS box LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    west float8 := -180;
    east float8 := 180;
    south float8 := -90;
    north float8 := 90;
    is_lng boolean := true;
    letter text;
    digit int;
BEGIN
    FOREACH letter IN ARRAY string_to_array(lower(prefix), NULL) LOOP
        digit := strpos('0123456789bcdefghjkmnpqrstuvwxyz', letter) - 1;
        IF digit < 0 THEN
            RAISE EXCEPTION '% is not a geohash', prefix USING ERRCODE = 'data_exception';
        END IF;
        FOR bit IN REVERSE 4..0 LOOP
            IF is_lng THEN
                IF digit & (1 << bit) > 0 THEN west := (west + east) / 2; ELSE east := (west + east) / 2; END IF;
            ELSE
                IF digit & (1 << bit) > 0 THEN south := (south + north) / 2; ELSE north := (south + north) / 2; END IF;
            END IF;
            is_lng := NOT is_lng;
        END LOOP;
    END LOOP;
    RETURN box(point(west * 1e6, south * 1e6), point(east * 1e6, north * 1e6));
END $$;

-- Returns the first letters of the geohash of a cell. `x` counts the columns of geohash-6 cells from the west and `y` their rows
-- from the south, both from 0 to 32767.
CREATE FUNCTION dispatchq_geohash(x integer, y integer, letters integer) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT left(string_agg(substr('0123456789bcdefghjkmnpqrstuvwxyz', letter + 1, 1), '' ORDER BY place DESC), letters)
    FROM (SELECT bit / 5 AS place,
                 sum(((CASE bit % 2 WHEN 1 THEN x ELSE y END >> (bit / 2)) & 1) << (bit % 5))::integer AS letter
          FROM generate_series(0, 29) AS bit GROUP BY bit / 5) AS word
$$;

-- Replaces the parts of an area. -180 and 180 are the same meridian, and locations at 180 are searched at -180. So a polygon that
-- touches 180 is also stored 360 degrees further west. An area with an invalid shape gets no parts; the programs ignore it as well.
CREATE FUNCTION dispatchq_area_parts(area text, geometry jsonb, geohashes text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM area_parts p WHERE p.area_id = area;
    INSERT INTO area_parts (area_id, square, bounds, outline, holes)
    SELECT area, square, box(shape.outline), shape.outline, shape.holes
    FROM (SELECT shift, dispatchq_ring(rings -> 0, shift) AS outline,
                 ARRAY(SELECT dispatchq_ring(hole, shift) FROM jsonb_array_elements(rings) WITH ORDINALITY AS r(hole, n)
                       WHERE n > 1) AS holes
          FROM jsonb_array_elements(CASE geometry ->> 'type'
                                        WHEN 'Polygon' THEN jsonb_build_array(geometry -> 'coordinates')
                                        WHEN 'MultiPolygon' THEN geometry -> 'coordinates'
                                        ELSE '[]' END) AS part(rings)
               CROSS JOIN (VALUES (0), (-360)) AS turn(shift)) AS shape
         CROSS JOIN dispatchq_squares_of(box(shape.outline)) AS square
    WHERE shift = 0 OR ((box(shape.outline))[0])[0] >= -180e6;
    INSERT INTO area_parts (area_id, square, bounds)
    SELECT area, square, bounds
    FROM unnest(geohashes) AS prefix CROSS JOIN dispatchq_geohash_bounds(prefix) AS bounds
         CROSS JOIN dispatchq_squares_of(bounds) AS square;
    INSERT INTO area_grids (grid) SELECT DISTINCT p.square >> 40 FROM area_parts p WHERE p.area_id = area ON CONFLICT DO NOTHING;
EXCEPTION WHEN data_exception THEN
    DELETE FROM area_parts p WHERE p.area_id = area;
END $$;

CREATE FUNCTION dispatchq_area_drawn() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM dispatchq_area_parts(NEW.id, NEW.geometry, NEW.geohashes);
    RETURN NULL;
END $$;
CREATE TRIGGER drawn AFTER INSERT OR UPDATE OF geometry, geohashes ON areas
    FOR EACH ROW EXECUTE FUNCTION dispatchq_area_drawn();

-- Returns the area of a location for a service type, or null. Several areas are compared by the priority of their limits, then by
-- their own priority, then a polygon comes before a geohash, then the first id wins. The function is PL/pgSQL, because then a
-- session caches its plan.
CREATE FUNCTION dispatchq_area_at(lat double precision, lng double precision, service_type text) RETURNS text
    LANGUAGE plpgsql STABLE AS $$
DECLARE
    x CONSTANT float8 := CASE WHEN lng >= 180 THEN lng - 360 ELSE lng END * 1e6;
    y CONSTANT float8 := lat * 1e6;
    from_west CONSTANT bigint := floor(x) + 180000000;
    from_south CONSTANT bigint := floor(y) + 90000000;
BEGIN
    RETURN (
        SELECT a.id
        FROM area_parts p
        JOIN areas a ON a.id = p.area_id
        LEFT JOIN area_limits l ON l.area_id = a.id AND l.service_type = $3
        -- An array, because Postgres overestimates small tables that it never analyzes, and would then read all parts.
        WHERE p.square = ANY (ARRAY(SELECT dispatchq_square(g.grid, from_west, from_south) FROM area_grids g))
          AND dispatchq_covers(p.bounds, p.outline, p.holes, x, y)
          AND (cardinality(a.service_type) = 0 OR $3 = ANY (a.service_type))
        ORDER BY coalesce(l.priority, 0) DESC, a.priority DESC, p.outline IS NOT NULL DESC, a.id COLLATE "C"
        LIMIT 1);
END $$;

-- Number of waiting orders in each area, once a minute.
CREATE TABLE waiting_snapshots (
    at           timestamptz(3) NOT NULL,
    area_id      text NOT NULL,
    service_type text NOT NULL,
    waiting      bigint NOT NULL,
    threshold    bigint NOT NULL,
    rejected     bigint NOT NULL,
    would_reject bigint NOT NULL,
    bypassed     bigint NOT NULL,
    refuses      text NOT NULL CHECK (refuses IN ('', 'DISABLED', 'FORCED', 'THRESHOLD', 'COOLING')),
    PRIMARY KEY (at, area_id, service_type)
);
COMMENT ON COLUMN waiting_snapshots.rejected IS 'orders refused since the previous snapshot';
COMMENT ON COLUMN waiting_snapshots.refuses IS 'why the area refused orders at that time; empty: it did not refuse';

-- Verdicts of admission by the hour, for the report and for tuning thresholds. Processes add their counts once a second, so a
-- request may be counted in an hour that has already ended.
CREATE TABLE admission_counts (
    hour         timestamptz(3) NOT NULL,
    area_id      text NOT NULL,
    service_type text NOT NULL,
    source       text NOT NULL,
    verdict      text NOT NULL,
    cause        text NOT NULL,
    loyalty      text NOT NULL,
    waiting      bigint NOT NULL,
    requests     bigint NOT NULL CHECK (requests > 0),
    in_snapshot  bigint NOT NULL DEFAULT 0 CHECK (in_snapshot BETWEEN 0 AND requests),
    PRIMARY KEY (hour, area_id, service_type, source, verdict, cause, loyalty, waiting)
) WITH (fillfactor = 80);
COMMENT ON COLUMN admission_counts.area_id IS 'empty: outside all areas';
COMMENT ON COLUMN admission_counts.source IS 'check: a question before an order exists; create: the creation of an order';
COMMENT ON COLUMN admission_counts.verdict IS 'TAKEN, BYPASSED, WOULD_REFUSE (shadow mode) or REFUSED';
COMMENT ON COLUMN admission_counts.cause IS 'threshold, disabled, forced, outside or unavailable; "none": the request was taken';
COMMENT ON COLUMN admission_counts.loyalty IS 'loyalty level of the customer; empty: none, or an unknown level';
COMMENT ON COLUMN admission_counts.waiting IS 'waiting orders: exact below 50, then rounded down to a multiple of 5, from 500 to a multiple of 50, and so on; -1: unknown';
COMMENT ON COLUMN admission_counts.in_snapshot IS 'number of these requests that waiting_snapshots includes';

CREATE TABLE shadow_refusals (
    id            bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    at            timestamptz(3) NOT NULL,
    source        text NOT NULL,
    order_id      text,
    area_id       text NOT NULL,
    service_type  text NOT NULL,
    waiting       bigint,
    threshold     bigint NOT NULL,
    channel       text,
    loyalty_level text
);
COMMENT ON TABLE shadow_refusals IS 'requests that were admitted only because of shadow mode';
COMMENT ON COLUMN shadow_refusals.order_id IS 'the created order; null: the request only checked availability';
COMMENT ON COLUMN shadow_refusals.waiting IS 'waiting orders; null: unknown';
CREATE INDEX shadow_refusals_by_age ON shadow_refusals (at);
