//! Nothing is taken while Postgres does not answer: a job that cannot read its row can only wait, and waits better in
//! the queue.

use std::time::Duration;

use sqlx::PgPool;
use tokio_util::sync::CancellationToken;
use workers::Gate;

const EVERY: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(2);

/// Opens and closes the gate by asking Postgres once a second.
pub async fn watch(db: PgPool, gate: Gate, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let answers = is_ready(&db).await;
        if gate.set_open(answers) {
            if answers {
                tracing::info!("Postgres answers; jobs are taken.");
            } else {
                tracing::warn!("Postgres does not answer; no job is taken until it does.");
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// Does Postgres answer a question in time?
pub async fn is_ready(db: &PgPool) -> bool {
    let question = sqlx::query("SELECT 1").execute(db);
    tokio::time::timeout(PATIENCE, question).await.is_ok_and(|answer| answer.is_ok())
}
