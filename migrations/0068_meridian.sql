-- The area of a place. -180 and 180 are two names of one meridian, so a place there is looked up under both. Cells of
-- geohashes end before their eastern border, so only -180 lies in one.
CREATE OR REPLACE FUNCTION dispatchq_area_at(lat double precision, lng double precision, service_type text) RETURNS text
    LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT a.id
        FROM (SELECT $2 * 1e6 AS x, $1 * 1e6 AS y UNION ALL SELECT -$2 * 1e6, $1 * 1e6 WHERE abs($2) >= 180) AS place
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
        LIMIT 1);
END $$;
