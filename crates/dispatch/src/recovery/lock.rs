//! One replica at a time: a Postgres advisory lock, held for one run only. The replica that holds it shows that it lives;
//! one that freezes or is cut off loses it within five seconds, by Postgres' own timeout.

use std::time::Duration;

use sqlx::{PgConnection, PgPool};

/// A fifth of what Postgres lets a transaction idle (`idle_in_transaction_session_timeout`, see `db`).
const SIGN_OF_LIFE_EVERY: Duration = Duration::from_secs(1);
/// A sign of life that is not answered by then is none, and the lock is taken for lost: before Postgres gives it to another.
const SIGN_OF_LIFE_TIMEOUT: Duration = Duration::from_secs(3);

/// Does the work if no other replica is at it. `None`: another is.
///
/// The lock is held on a connection of `upkeep`, the work is done on others: with one pool for both, a few locks could take every
/// connection, and each would wait for one more.
pub async fn exclusively<T>(
    upkeep: &PgPool,
    lock: i64,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<Option<T>> {
    let mut held = upkeep.begin().await?;
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
    // The work is done on other connections. A replica that lost the lock must not go on: another may be at it.
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
        let sign = sqlx::query("SELECT 1").execute(&mut *held);
        match tokio::time::timeout(SIGN_OF_LIFE_TIMEOUT, sign).await {
            Ok(Ok(_)) => {}
            Ok(Err(lost)) => return lost,
            Err(_) => return sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()),
        }
    }
}
