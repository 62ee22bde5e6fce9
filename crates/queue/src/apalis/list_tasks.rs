//! Listing tasks in pages: running ones first, then waiting ones by due time, then dead ones. Tasks that are done are no
//! longer in the queue.

use apalis_core::{
    backend::{Filter, ListAllTasks, ListTasks},
    task::{Task, status::Status},
};
use serde_json::Value;

use super::{
    list_queues::find_queues,
    storage::{QueueStorage, Stored},
    task::{found_task, status_of},
};
use crate::{
    job::JobId,
    shards::Shards,
    store::{JobState, QueueStats, StoreError},
};

/// Maximum number of tasks per page. Each of them costs one call to Redis.
const MOST: usize = 100;

const STATES: [JobState; 5] = [JobState::Leased, JobState::Due, JobState::Suspect, JobState::Parked, JobState::Dead];

impl<Args> ListTasks for QueueStorage<Args> {
    async fn list_tasks(&self, filter: &Filter) -> Stored<Vec<Task<Value>>> {
        Ok(Box::pin(list_page(&self.shards, &[self.config.queue], filter)).await?)
    }
}

impl<Args> ListAllTasks for QueueStorage<Args> {
    async fn list_all_tasks(&self, filter: &Filter) -> Stored<Vec<Task<Value>>> {
        let queues = Box::pin(find_queues(&self.shards, self.config.queue)).await?;
        let queues: Vec<&str> = queues.iter().map(String::as_str).collect();
        Ok(Box::pin(list_page(&self.shards, &queues, filter)).await?)
    }
}

async fn list_page(shards: &Shards, queues: &[&str], filter: &Filter) -> Result<Vec<Task<Value>>, StoreError> {
    let limit = (filter.limit() as usize).min(MOST);
    // Pages start at 1. `Filter::offset` fails for page 0.
    let mut skip = limit.saturating_mul(filter.page.saturating_sub(1) as usize);
    let mut tasks = Vec::new();
    for stats in shards.queue_stats(queues).await? {
        for state in STATES.into_iter().filter(|state| is_wanted(*state, filter.status.as_ref())) {
            let jobs = count_of(&stats, state);
            if skip >= jobs {
                skip -= jobs;
                continue;
            }
            let entries = shards.list_jobs(&stats.queue, state, skip, limit - tasks.len()).await?;
            skip = 0;
            for entry in entries {
                let Ok(id) = JobId::parse(entry.id) else { continue };
                // A job that has moved on since is left out.
                let found = shards.find_job(&id, &[&stats.queue]).await?;
                tasks.extend(found.as_ref().and_then(found_task));
            }
            if tasks.len() >= limit {
                return Ok(tasks);
            }
        }
    }
    Ok(tasks)
}

fn is_wanted(state: JobState, status: Option<&Status>) -> bool {
    status.is_none_or(|status| *status == status_of(state))
}

fn count_of(stats: &QueueStats, state: JobState) -> usize {
    let jobs = match state {
        JobState::Due => (stats.due + stats.scheduled).saturating_sub(stats.suspects),
        JobState::Suspect => stats.suspects,
        JobState::Parked => stats.parked,
        JobState::Leased => stats.leased,
        JobState::Dead => stats.dead,
    };
    usize::try_from(jobs).unwrap_or(usize::MAX)
}
