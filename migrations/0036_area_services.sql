-- Areas of certain service types, thresholds by the time of day, and orders that are located where they are written.

ALTER TABLE areas
    ADD COLUMN service_type text[] NOT NULL DEFAULT '{}',
    ADD COLUMN time_zone    text CHECK (octet_length(time_zone) BETWEEN 1 AND 64);
COMMENT ON COLUMN areas.service_type IS 'service types the area is for; empty: all';
COMMENT ON COLUMN areas.time_zone IS 'IANA name, such as Asia/Jakarta, in which schedules are read; null: the configuration''s';

ALTER TABLE area_limits ADD COLUMN schedule jsonb;
COMMENT ON COLUMN area_limits.schedule IS
    'thresholds by weekday and time of day, instead of max_waiting_orders while one of them holds; null: none';
COMMENT ON COLUMN area_limits.priority IS
    'where areas overlap, the limits with the highest win for this service type, before the priority of the areas';

-- The shapes of areas, made of `areas` by a trigger, so that SQL finds the area of a place. One row for each polygon and
-- each geohash, in millionths of a degree: Postgres takes shapes that differ by less than a millionth of a unit for the same.
CREATE TABLE area_parts (
    area_id text NOT NULL REFERENCES areas (id) ON DELETE CASCADE,
    bounds  box NOT NULL,
    outline polygon,
    holes   polygon[] NOT NULL DEFAULT '{}'
);
COMMENT ON COLUMN area_parts.bounds IS 'longitude is x, in millionths of a degree';
COMMENT ON COLUMN area_parts.outline IS 'null: the bounds are a geohash''s';
CREATE INDEX area_parts_by_area ON area_parts (area_id);
CREATE INDEX area_parts_by_bounds ON area_parts USING gist (bounds);

-- A ring of GeoJSON as a polygon. Fails where a corner is no place on earth.
CREATE FUNCTION dispatchq_ring(ring jsonb) RETURNS polygon LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    corners text;
    wrong bigint;
BEGIN
    SELECT string_agg(format('(%s,%s)', (c ->> 0)::float8 * 1e6, (c ->> 1)::float8 * 1e6), ',' ORDER BY n),
           count(*) FILTER (WHERE ((c ->> 0)::float8 BETWEEN -180 AND 180 AND (c ->> 1)::float8 BETWEEN -90 AND 90) IS NOT TRUE)
    INTO corners, wrong
    FROM jsonb_array_elements(ring) WITH ORDINALITY AS corner(c, n);
    IF wrong > 0 THEN
        RAISE EXCEPTION 'a corner is no longitude and latitude' USING ERRCODE = 'data_exception';
    END IF;
    RETURN format('(%s)', corners)::polygon;
END $$;

-- The cell of a geohash prefix.
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
            RAISE EXCEPTION '% is no geohash', prefix USING ERRCODE = 'data_exception';
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

-- An area that cannot be read has no parts, as programs leave it out.
CREATE FUNCTION dispatchq_area_parts(area text, geometry jsonb, geohashes text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM area_parts p WHERE p.area_id = area;
    INSERT INTO area_parts (area_id, bounds, outline, holes)
    SELECT area, box(shape.outline), shape.outline, shape.holes
    FROM (SELECT dispatchq_ring(rings -> 0) AS outline,
                 ARRAY(SELECT dispatchq_ring(hole) FROM jsonb_array_elements(rings) WITH ORDINALITY AS r(hole, n)
                       WHERE n > 1) AS holes
          FROM jsonb_array_elements(CASE geometry ->> 'type'
                                        WHEN 'Polygon' THEN jsonb_build_array(geometry -> 'coordinates')
                                        WHEN 'MultiPolygon' THEN geometry -> 'coordinates'
                                        ELSE '[]' END) AS part(rings)) AS shape;
    INSERT INTO area_parts (area_id, bounds) SELECT area, dispatchq_geohash_bounds(prefix) FROM unnest(geohashes) AS prefix;
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

-- The areas there are. No number of a revision moves: they did not change.
SELECT dispatchq_area_parts(id, geometry, geohashes) FROM areas;

-- The area of a place for a service type: of several the one whose limits have the highest priority, then the area's own
-- priority, then a polygon before a geohash, then the first by id. Null: none.
CREATE FUNCTION dispatchq_area_at(lat double precision, lng double precision, service_type text) RETURNS text
    LANGUAGE sql STABLE AS $$
    SELECT a.id
    FROM (SELECT $2 * 1e6 AS x, $1 * 1e6 AS y) AS place
    JOIN area_parts p ON p.bounds @> box(point(place.x, place.y))
    JOIN areas a ON a.id = p.area_id
    LEFT JOIN area_limits l ON l.area_id = a.id AND l.service_type = $3
    WHERE (cardinality(a.service_type) = 0 OR $3 = ANY (a.service_type))
      AND CASE WHEN p.outline IS NULL
               -- Cells lie side by side: the western and southern border is the cell's.
               THEN place.x >= ((p.bounds)[1])[0] AND place.y >= ((p.bounds)[1])[1]
                    AND place.x < ((p.bounds)[0])[0] AND place.y < ((p.bounds)[0])[1]
               ELSE p.outline @> point(place.x, place.y)
                    AND NOT EXISTS (SELECT FROM unnest(p.holes) AS hole WHERE hole @> point(place.x, place.y)) END
    ORDER BY coalesce(l.priority, 0) DESC, a.priority DESC, p.outline IS NOT NULL DESC, a.id COLLATE "C"
    LIMIT 1
$$;
