-- count supply of a minute
WITH claimed AS (
    -- the first count of a minute writes its row here; others wait for its commit and write nothing
    INSERT INTO supply_minutes (minute, counted_at)
    SELECT $1::timestamptz, clock.now FROM (SELECT dispatchq_now() AS now OFFSET 0) AS clock
    WHERE clock.now >= $1 + interval '1 minute' AND clock.now < $1 + interval '90 seconds'
    ON CONFLICT (minute) DO NOTHING
    RETURNING minute),
fleet AS MATERIALIZED (
    SELECT d.id, d.service_types, floor((d.lng + 180) / 360 * 32768)::integer % 32768 AS x,
           least(floor((d.lat + 90) / 180 * 32768)::integer, 32767) AS y,
           CASE WHEN (SELECT count(*) FROM orders o
                      WHERE o.driver_id = d.id AND o.on_trip AND o.partner IS NULL) > 0 THEN 'busy'
                WHEN d.available THEN 'free' ELSE 'off_duty' END AS fact
    FROM claimed CROSS JOIN drivers d WHERE d.disabled_at IS NULL),
served AS MATERIALIZED (
    SELECT f.id, t.service_type, f.x, f.y, f.fact
    FROM fleet f CROSS JOIN LATERAL (SELECT DISTINCT s AS service_type FROM unnest(f.service_types) AS s) t),
-- the number of letters of each driver's row: a cell with fewer than three drivers shares the row of a wider cell
cells AS MATERIALIZED (
    SELECT service_type, x, y,
           CASE WHEN count(*) >= 3 THEN 6
                WHEN sum(CASE WHEN count(*) < 3 THEN count(*) END)
                     OVER (PARTITION BY service_type, x >> 2, y >> 3) >= 3 THEN 5
                ELSE 0 END AS letters
    FROM served GROUP BY service_type, x, y),
wide_cells AS MATERIALIZED (
    SELECT service_type, x, y,
           coalesce(dispatchq_area_at((y * 8 + 4) / 32768.0 * 180 - 90, (x * 4 + 2) / 32768.0 * 360 - 180, service_type), '')
               AS area_id
    FROM (SELECT DISTINCT service_type, x >> 2 AS x, y >> 3 AS y FROM cells) w),
places AS MATERIALIZED (
    SELECT c.service_type, c.x, c.y, w.area_id, c.letters,
           CASE c.letters WHEN 6 THEN c.x WHEN 5 THEN c.x & -4 ELSE 0 END AS row_x,
           CASE c.letters WHEN 6 THEN c.y WHEN 5 THEN c.y & -8 ELSE 0 END AS row_y
    FROM cells c JOIN wide_cells w ON w.service_type = c.service_type AND w.x = (c.x >> 2) AND w.y = (c.y >> 3)),
-- the index of each part finds a driver's offers; an index on times would cost every order three entries
asked AS MATERIALIZED (
    SELECT f.id, (SELECT o.service_type FROM orders o WHERE o.id = a.order_id) AS service_type, e.fact,
           CASE WHEN a.distance_m < 500 THEN 1 WHEN a.distance_m < 1000 THEN 2 WHEN a.distance_m < 3000 THEN 3 ELSE 4 END AS band
    FROM fleet f
    CROSS JOIN LATERAL (
        SELECT o.order_id, o.distance_m, o.state, o.offered_at, o.responded_at FROM offers o
        WHERE o.driver_id = f.id AND o.state = 'offered'
        UNION ALL
        SELECT o.order_id, o.distance_m, o.state, o.offered_at, o.responded_at FROM offers o
        WHERE o.driver_id = f.id AND o.state IN ('declined', 'expired') AND o.responded_at >= $1
        UNION ALL
        SELECT o.order_id, o.distance_m, o.state, o.offered_at, o.responded_at FROM offers o
        WHERE o.driver_id = f.id AND o.state IN ('accepted', 'superseded', 'withdrawn') AND o.responded_at >= $1) a
    CROSS JOIN LATERAL (VALUES ('made', a.offered_at), (a.state, a.responded_at)) AS e (fact, at)
    WHERE e.at >= $1 AND e.at < $1 + interval '1 minute'),
facts AS (
    SELECT service_type, x, y, fact, 0 AS band FROM served
    UNION ALL
    SELECT s.service_type, s.x, s.y, a.fact, a.band
    FROM asked a JOIN served s ON s.id = a.id AND s.service_type = a.service_type),
written AS (
    INSERT INTO supply_counts (minute, service_type, area_id, cell, free, busy, off_duty,
                               made_500m, made_1km, made_3km, made_far,
                               accepted_500m, accepted_1km, accepted_3km, accepted_far,
                               declined_500m, declined_1km, declined_3km, declined_far,
                               unanswered_500m, unanswered_1km, unanswered_3km, unanswered_far)
    SELECT m.minute, p.service_type, p.area_id, dispatchq_geohash(p.row_x, p.row_y, p.letters),
           count(*) FILTER (WHERE f.fact = 'free'), count(*) FILTER (WHERE f.fact = 'busy'),
           count(*) FILTER (WHERE f.fact = 'off_duty'),
           count(*) FILTER (WHERE f.fact = 'made' AND f.band = 1), count(*) FILTER (WHERE f.fact = 'made' AND f.band = 2),
           count(*) FILTER (WHERE f.fact = 'made' AND f.band = 3), count(*) FILTER (WHERE f.fact = 'made' AND f.band = 4),
           count(*) FILTER (WHERE f.fact = 'accepted' AND f.band = 1), count(*) FILTER (WHERE f.fact = 'accepted' AND f.band = 2),
           count(*) FILTER (WHERE f.fact = 'accepted' AND f.band = 3), count(*) FILTER (WHERE f.fact = 'accepted' AND f.band = 4),
           count(*) FILTER (WHERE f.fact = 'declined' AND f.band = 1), count(*) FILTER (WHERE f.fact = 'declined' AND f.band = 2),
           count(*) FILTER (WHERE f.fact = 'declined' AND f.band = 3), count(*) FILTER (WHERE f.fact = 'declined' AND f.band = 4),
           count(*) FILTER (WHERE f.fact = 'expired' AND f.band = 1), count(*) FILTER (WHERE f.fact = 'expired' AND f.band = 2),
           count(*) FILTER (WHERE f.fact = 'expired' AND f.band = 3), count(*) FILTER (WHERE f.fact = 'expired' AND f.band = 4)
    FROM claimed m CROSS JOIN facts f
    JOIN places p ON p.service_type = f.service_type AND p.x = f.x AND p.y = f.y
    GROUP BY m.minute, p.service_type, p.area_id, p.letters, p.row_x, p.row_y
    RETURNING 1)
SELECT m.minute, (SELECT count(*) FROM written) AS rows FROM claimed m
