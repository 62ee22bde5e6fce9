//! One replica at a time: a Postgres advisory lock, held for one run only, so that a replica that freezes holds it no
//! longer than Postgres' own timeouts allow.

use sqlx::PgPool;

/// Does the work if no other replica is at it. `None`: another is.
pub async fn exclusively<T>(
    db: &PgPool,
    lock: i64,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<Option<T>> {
    let mut held = db.begin().await?;
    let mine: bool = sqlx::query_scalar(
        "-- try lock
         SELECT pg_try_advisory_xact_lock($1)",
    )
    .bind(lock)
    .fetch_one(&mut *held)
    .await?;
    if !mine {
        return Ok(None);
    }
    // The lock's own connection idles while the work is done on others.
    sqlx::query("SET LOCAL idle_in_transaction_session_timeout = 0").execute(&mut *held).await?;
    let done = work.await?;
    held.rollback().await?;
    Ok(Some(done))
}
