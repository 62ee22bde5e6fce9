//! Statistics of queues, with the titles that apalis-board knows. Numbers of tasks that are done are not among them,
//! because the engine removes such tasks.

use apalis_core::backend::{StatType, Statistic};

use crate::store::QueueStats;

/// Returns the sums over these queues.
pub(super) fn statistics_of(queues: &[QueueStats], now_ms: u64) -> Vec<Statistic> {
    let sum = |count: fn(&QueueStats) -> u64| queues.iter().map(count).sum::<u64>();
    let (running, failed, backlog) = (sum(|of| of.leased), sum(|of| of.dead), sum(|of| of.due));
    let pending = sum(|of| of.due + of.scheduled + of.parked);
    let mut statistics = vec![
        statistic("RUNNING_JOBS", StatType::Number, running),
        statistic("PENDING_JOBS", StatType::Number, pending),
        statistic("QUEUE_BACKLOG", StatType::Number, backlog),
        statistic("FAILED_JOBS", StatType::Number, failed),
        statistic("TOTAL_JOBS", StatType::Number, running + pending + failed),
    ];
    if let Some(waited_ms) = queues.iter().filter_map(|of| of.oldest_due_ms).max() {
        let since_secs = now_ms.saturating_sub(waited_ms) / 1000;
        statistics.push(statistic("OLDEST_PENDING_JOB", StatType::Timestamp, since_secs));
    }
    for (priority, statistic) in (1..).zip(&mut statistics) {
        statistic.priority = Some(priority);
    }
    statistics
}

fn statistic(title: &str, stat_type: StatType, value: u64) -> Statistic {
    Statistic { title: title.to_owned(), stat_type, value: value.to_string(), priority: None }
}
