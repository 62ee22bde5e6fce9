//! Snapshots of queues, areas and totals for later comparison.

use serde::Serialize;

use crate::capability::Maintenance;
use desk::reports::{
    area_status, census,
    glance::{self, EngineStanding},
};
use foundation::error::ServiceError;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct StatisticsReport {
    pub queues: usize,
    pub areas: usize,
}

pub async fn run(maintenance: &Maintenance) -> Result<StatisticsReport, ServiceError> {
    let stats = maintenance.core.queue().queue_stats(&jobs::queues::ALL).await?;
    let column = |value: fn(&queue::store::QueueStats) -> u64| -> Vec<i64> {
        stats.iter().map(|s| value(s).cast_signed()).collect()
    };
    sqlx::query(
        "-- snapshot queues
         INSERT INTO queue_snapshots (at, queue, due, scheduled, leased, dead)
         SELECT t.at, q.* FROM (SELECT dispatchq_now() AS at) t,
                unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) q
         ON CONFLICT DO NOTHING",
    )
    .bind(stats.iter().map(|s| s.queue.clone()).collect::<Vec<_>>())
    .bind(column(|s| s.due))
    .bind(column(|s| s.scheduled))
    .bind(column(|s| s.leased))
    .bind(column(|s| s.dead))
    .execute(&maintenance.core.db)
    .await?;
    let census = census::take_census(&maintenance.core.db).await?;
    let areas = area_status::save_counted(&maintenance.desk, &census).await?;
    let lateness = maintenance.core.store.read_lateness().await?;
    let workers = maintenance.core.store.list_workers().await?;
    let engine = EngineStanding {
        open_orders: census.orders,
        lateness_p99_ms: lateness.p99_ms,
        oldest_due_ms: stats.iter().filter_map(|queue| queue.oldest_due_ms).max().unwrap_or(0),
        workers: workers.len() as u64,
    };
    glance::save_glance(&maintenance.core.db, engine).await?;
    Ok(StatisticsReport { queues: stats.len(), areas })
}
