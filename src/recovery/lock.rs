//! One replica at a time: a Postgres advisory lock, held for one run only. The replica that holds it shows that it lives;
//! one that freezes or is cut off loses it within half a minute, by Postgres' own timeout.

use std::time::Duration;

use sqlx::{PgConnection, PgPool};

/// A fifth of what Postgres lets a transaction idle (`idle_in_transaction_session_timeout`, see `db`).
const SIGN_OF_LIFE_EVERY: Duration = Duration::from_secs(5);

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
    // The work is done on other connections. Whoever lost the lock must not go on: another replica may be at it.
    let done = tokio::select! {
        done = work => done?,
        lost = until_lost(&mut held) => return Err(anyhow::Error::new(lost).context("the lock was lost")),
    };
    held.rollback().await?;
    Ok(Some(done))
}

async fn until_lost(held: &mut PgConnection) -> sqlx::Error {
    loop {
        tokio::time::sleep(SIGN_OF_LIFE_EVERY).await;
        if let Err(lost) = sqlx::query("SELECT 1").execute(&mut *held).await {
            return lost;
        }
    }
}
