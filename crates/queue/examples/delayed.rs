//! A delayed queue: each reminder runs after its delay, to the millisecond. Usage: `delayed [REDIS_URL]`

use std::time::Duration;

use apalis::prelude::*;
use queue::{Delivery, QueueStorage, RunAfter};

#[derive(serde::Serialize, serde::Deserialize)]
struct Reminder {
    customer: u64,
}

async fn remind(reminder: Reminder, delivery: Data<Delivery>, worker: WorkerContext) -> Result<(), BoxDynError> {
    println!("reminds customer {}, {} ms late", reminder.customer, delivery.lateness_ms);
    if reminder.customer == 3 {
        worker.stop()?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), BoxDynError> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1".to_owned());
    let mut reminders = QueueStorage::connect(&url, "reminders").await?;
    for (customer, millis) in [(3, 900), (1, 300), (2, 600)] {
        let task = TaskBuilder::new(Reminder { customer }).data(RunAfter(Duration::from_millis(millis)));
        reminders.push_task(task.build()).await?;
    }
    WorkerBuilder::new("reminder-1").backend(reminders).build(remind).run().await?;
    Ok(())
}
