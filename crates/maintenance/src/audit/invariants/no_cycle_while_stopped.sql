SELECT binding_id, 'cycle ' || cycle || ' began after event ' || greatest(stopped, paused)
FROM (SELECT binding_id, cycle,
             coalesce(max(seq) FILTER (WHERE kind = 'started') OVER so_far, 0) AS started,
             coalesce(max(seq) FILTER (WHERE kind = 'resumed') OVER so_far, 0) AS resumed,
             max(seq) FILTER (WHERE kind = 'paused') OVER so_far AS paused,
             max(seq) FILTER (WHERE kind IN ('stopping', 'stopped')) OVER so_far AS stopped
      FROM (SELECT binding_id, at, NULL AS cycle, seq, kind,
                   CASE WHEN kind IN ('started', 'resumed') THEN 0 ELSE 2 END AS rank
            FROM audit_binding_events
            WHERE kind IN ('started', 'resumed', 'paused', 'stopping', 'stopped')
            UNION ALL
            SELECT binding_id, started_at, cycle, NULL, 'began', 1 FROM audit_transactions) e
      WINDOW so_far AS (PARTITION BY binding_id ORDER BY at, rank, seq)) e
WHERE cycle IS NOT NULL AND (stopped > started OR paused > greatest(started, resumed))
