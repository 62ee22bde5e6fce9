//! Retries and dead tasks. With the layer `catch_panic`, a task that panics is dead at once. Usage: `retries [REDIS_URL]`

use std::{io, time::Duration};

use apalis::prelude::*;
use queue::{QueueStorage, RetryPolicy};

async fn pay(amount: i64, attempt: Attempt) -> Result<(), BoxDynError> {
    println!("pays {amount}, try {}", attempt.current());
    match amount {
        // This can never succeed, so it is dead at once.
        i64::MIN..=0 => Err(AbortError::new("there is nothing to pay").into()),
        // The bank answers at the third try.
        1..=99 if attempt.current() < 3 => Err("the bank does not answer".into()),
        1..=99 => Ok(()),
        100..=999 => Err("the bank refuses".into()),
        _ => panic!("the amount is too large"),
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxDynError> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1".to_owned());
    let retry = RetryPolicy { max_tries: 5, initial: Duration::from_millis(20), ..RetryPolicy::DEFAULT };
    let mut payments = QueueStorage::connect(&url, "payments").await?.retry(retry);
    // The task of 500 has two tries instead of five.
    for (id, amount, tries) in [("a", 10, 5), ("b", -10, 5), ("c", 500, 2), ("d", 1000, 5)] {
        let task = TaskBuilder::new(amount).task_id(TaskId::from_string(id)).max_attempts(tries);
        payments.push_task(task.build()).await?;
    }

    let worker = WorkerBuilder::new("cashier-1").backend(payments.clone()).catch_panic().build(pay);
    worker.run_until(until_ended(payments.clone())).await?;

    let dead = payments.list_tasks(&Filter { status: Some(Status::Failed), page: 1, page_size: None }).await?;
    let ids: Vec<TaskId> = dead.iter().filter_map(|task| task.task_id().cloned()).collect();
    let results: Vec<TaskResult<()>> = payments.check_status(ids).await?;
    for result in results {
        println!("dead: {}: {}", result.task_id, result.result.unwrap_err());
    }
    Ok(())
}

/// Waits until no task is waiting or running.
async fn until_ended(payments: QueueStorage<i64>) -> io::Result<()> {
    loop {
        let statistics = payments.fetch_by_queue().await.map_err(io::Error::other)?;
        let is_unfinished = |statistic: &Statistic| {
            ["PENDING_JOBS", "RUNNING_JOBS"].contains(&statistic.title.as_str()) && statistic.value != "0"
        };
        if !statistics.iter().any(is_unfinished) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
