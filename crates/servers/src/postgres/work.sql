WITH w AS MATERIALIZED (
    SELECT resource_manager AS manager, split_part(record_type, '+', 1) AS kind, record_length, fpi_length, description,
           substring(block_ref FROM 'rel \d+/\d+/(\d+)')::oid AS node
    FROM pg_get_wal_records_info('{start}', pg_current_wal_flush_lsn())),
-- Rows and indexes of a TOAST table count as those of its table, and days of the history as one table.
t AS (
    SELECT regexp_replace(c.relname, '_\d{8}$', '') AS name,
           count(*) FILTER (WHERE manager = 'Heap' AND kind = 'INSERT') AS inserts,
           count(*) FILTER (WHERE manager = 'Heap' AND kind = 'UPDATE') AS updates,
           count(*) FILTER (WHERE manager = 'Heap' AND kind = 'HOT_UPDATE') AS hot_updates,
           count(*) FILTER (WHERE manager = 'Heap' AND kind = 'DELETE') AS deletes,
           count(*) FILTER (WHERE manager = 'Heap' AND kind = 'LOCK') AS locks,
           count(*) FILTER (WHERE manager = 'Btree' AND kind IN ('INSERT_LEAF', 'INSERT_POST')
                               OR manager = 'Btree' AND kind LIKE 'SPLIT%' AND description LIKE 'level: 0%'
                               OR manager IN ('Gin', 'Gist') AND kind IN ('INSERT', 'PAGE_UPDATE')) AS index_entries,
           sum(record_length - fpi_length) AS wal_bytes
    FROM w JOIN pg_class f ON f.relfilenode = w.node
    LEFT JOIN pg_index i ON i.indexrelid = f.oid
    LEFT JOIN pg_class o ON o.reltoastrelid = coalesce(i.indrelid, f.oid)
    JOIN pg_class c ON c.oid = coalesce(o.oid, i.indrelid, f.oid)
    WHERE c.relnamespace <> 'pg_catalog'::regnamespace
    GROUP BY 1),
s AS (
    SELECT CASE WHEN query LIKE '-- %' THEN substr(split_part(query, E'\n', 1), 4) ELSE query END AS name,
           sum(calls)::bigint AS calls, sum(plans)::bigint AS plans, count(DISTINCT queryid) AS texts
    FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
    WHERE d.datname = current_database() AND (query LIKE '-- %' OR query IN ('BEGIN', 'COMMIT'))
    GROUP BY 1)
SELECT json_build_object(
    'commits', (SELECT count(*) FROM w WHERE manager = 'Transaction' AND kind = 'COMMIT'),
    'wal_bytes', (SELECT coalesce(sum(record_length - fpi_length), 0) FROM w),
    'full_page_bytes', (SELECT coalesce(sum(fpi_length), 0) FROM w),
    'tables', (SELECT coalesce(json_object_agg(name, to_jsonb(t) - 'name'), '{}') FROM t),
    'statements', (SELECT coalesce(json_object_agg(name, to_jsonb(s) - 'name'), '{}') FROM s))
