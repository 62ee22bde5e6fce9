//! Waits for results, reschedules a task, and deletes dead ones. Usage: `results [REDIS_URL]`

use std::time::Duration;

use apalis::prelude::*;
use apalis_core::backend::Vacuum;
use futures_util::TryStreamExt;
use queue::{QueueStorage, RunAfter};

async fn divide((dividend, divisor): (u32, u32)) -> Result<u32, BoxDynError> {
    dividend.checked_div(divisor).ok_or_else(|| AbortError::new("division by zero").into())
}

#[tokio::main]
async fn main() -> Result<(), BoxDynError> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1".to_owned());
    let storage = QueueStorage::connect(&url, "divisions").await?;
    let mut divisions = storage.keep_results(Duration::from_secs(60));
    let hour = RunAfter(Duration::from_secs(3600));
    divisions.push_task(TaskBuilder::new((42, 6)).task_id(TaskId::Int(1)).build()).await?;
    divisions.push_task(TaskBuilder::new((42, 0)).task_id(TaskId::Int(2)).build()).await?;
    divisions.push_task(TaskBuilder::new((42, 7)).task_id(TaskId::Int(3)).data(hour).build()).await?;

    // Task 3 would run in an hour. It runs now.
    if let Some(task) = divisions.fetch_by_id(&TaskId::Int(3)).await? {
        println!("task 3 is {} with {}", task.status(), task.args);
        divisions.reschedule(task, Duration::ZERO).await?;
    }

    let worker = WorkerBuilder::new("divider-1").backend(divisions.clone()).build(divide);
    let ids = [1, 2, 3].map(TaskId::Int);
    let results = divisions.wait_for(ids);
    let caller = async move {
        let mut results: Vec<TaskResult<u32>> = results.try_collect().await.map_err(std::io::Error::other)?;
        results.sort_by(|a, b| a.task_id.cmp(&b.task_id));
        for TaskResult { task_id, status, result, .. } in results {
            println!("task {task_id} is {status}: {result:?}");
        }
        Ok::<(), std::io::Error>(())
    };
    worker.run_until(caller).await?;

    println!("{} dead task deleted", divisions.vacuum().await?);
    Ok(())
}
