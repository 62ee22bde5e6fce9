//! Queues an operator stopped. Kept in Postgres, so that a flushed Redis does not start what a person stopped.

use workers::StoreError;

use crate::{app::App, people::actor::Actor};

#[derive(Debug, thiserror::Error)]
pub enum PauseError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Redis(#[from] StoreError),
}

/// Stops a queue; running jobs finish. False: it was stopped already.
pub async fn pause(app: &App, queue: &str, who: &Actor) -> Result<bool, PauseError> {
    sqlx::query(
        "-- pause queue
         INSERT INTO paused_queues (queue, paused_by) VALUES ($1, $2) ON CONFLICT DO NOTHING",
    )
    .bind(queue)
    .bind(who.to_string())
    .execute(&app.db)
    .await?;
    Ok(app.store.pause(queue).await?)
}

/// Lets a queue run again. False: it was running.
pub async fn resume(app: &App, queue: &str) -> Result<bool, PauseError> {
    sqlx::query(
        "-- resume queue
         DELETE FROM paused_queues WHERE queue = $1",
    )
    .bind(queue)
    .execute(&app.db)
    .await?;
    Ok(app.store.resume(queue).await?)
}

/// Stops in Redis what is stopped here.
pub async fn restore(app: &App) -> Result<(), PauseError> {
    let queues: Vec<String> = sqlx::query_scalar(
        "-- paused queues
         SELECT queue FROM paused_queues",
    )
    .fetch_all(&app.db)
    .await?;
    for queue in queues {
        app.store.pause(&queue).await?;
    }
    Ok(())
}
