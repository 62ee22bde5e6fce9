//! One replica of an installation at a time: a Postgres advisory lock of its schema, held for one run only. The replica that holds it shows that it lives;
//! one that freezes or is cut off loses it within five seconds, by Postgres' own timeout.

use std::time::Duration;

use crate::{
    db::{Connection, Pool},
    error::{DuringContext, ServiceError},
};
use tokio::time::Instant;

/// A fifth of what Postgres lets a transaction idle (`idle_in_transaction_session_timeout`, see `db`).
const SIGN_OF_LIFE_EVERY: Duration = Duration::from_secs(1);
/// The lock is taken for lost when so much time has passed since the last sign of life that was answered was sent: Postgres
/// has not yet given it to another.
const LOST_AFTER: Duration = Duration::from_secs(4);

/// Does the work if no other replica is at it. `None`: another is.
///
/// The lock is held on a connection of `upkeep`, the work is done on others: with one pool for both, a few locks could take every
/// connection, and each would wait for one more.
pub async fn run_under_lock<T>(
    upkeep: &Pool,
    lock: i64,
    work: impl Future<Output = Result<T, ServiceError>>,
) -> Result<Option<T>, ServiceError> {
    let mut held = upkeep.begin().await?;
    let asked = Instant::now();
    let mine: bool = sqlx::query_scalar(
        "-- try lock
         SELECT pg_try_advisory_xact_lock(dispatchq_lock($1::bigint))",
    )
    .bind(lock)
    .fetch_one(&mut *held)
    .await?;
    if !mine {
        return Ok(None);
    }
    // The work is done on other connections. A replica that lost the lock must not go on: another may be at it.
    let done = tokio::select! {
        // A process that stood still learns first that it has lost the lock.
        biased;
        lost = until_lost(&mut held, asked) => return Err(lost).during(|| "the lock was lost".to_owned()),
        done = work => done?,
    };
    held.rollback().await?;
    Ok(Some(done))
}

/// Returns when the lock is lost; `answered` is when the last statement that was answered was sent.
async fn until_lost(held: &mut Connection, mut answered: Instant) -> sqlx::Error {
    loop {
        tokio::time::sleep_until(answered + SIGN_OF_LIFE_EVERY).await;
        let sent = Instant::now();
        let sign = sqlx::query("SELECT 1").execute(&mut *held);
        match tokio::time::timeout_at(answered + LOST_AFTER, sign).await {
            Ok(Ok(_)) => answered = sent,
            Ok(Err(lost)) => return lost,
            Err(_) => return sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()),
        }
    }
}
