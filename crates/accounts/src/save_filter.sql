-- save filter
WITH changed AS (
    UPDATE saved_filters SET filter = $3 WHERE person = $1 AND name = $2 RETURNING name
), added AS (
    INSERT INTO saved_filters (person, name, filter, slot)
    SELECT $1, $2, $3, min(s.slot)
    FROM generate_series(1, 20) AS s (slot)
    WHERE NOT EXISTS (SELECT FROM changed)
      AND NOT EXISTS (SELECT FROM saved_filters f WHERE f.person = $1 AND f.slot = s.slot)
    HAVING min(s.slot) IS NOT NULL
    RETURNING name
)
SELECT EXISTS (SELECT FROM changed UNION ALL SELECT FROM added)
