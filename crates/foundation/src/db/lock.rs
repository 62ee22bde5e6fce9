//! Work that one replica of an installation does at a time. The lock is a Postgres advisory lock of the schema, held
//! for one run. The holder sends a heartbeat on the lock's connection. If the holder freezes or loses its connection,
//! Postgres releases the lock within five seconds.

use std::time::Duration;

use crate::{
    db::{Connection, Pool},
    error::{DuringContext, ServiceError},
};
use tokio::time::Instant;

/// Interval of the heartbeat: a fifth of Postgres' idle timeout for transactions
/// (`idle_in_transaction_session_timeout`, see `db`).
const SIGN_OF_LIFE_EVERY: Duration = Duration::from_secs(1);
/// Time after the last confirmed heartbeat at which the holder considers the lock lost. Postgres has not released it by
/// then.
const LOST_AFTER: Duration = Duration::from_secs(4);

/// Runs the work if no other replica is running it. Returns `None` if another replica holds the lock.
///
/// The lock is held on a connection of `upkeep`, and the work uses other connections. With one pool for both, a few
/// locks could take every connection and then wait for each other.
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
    // A replica that lost the lock stops its work, because another replica may have started it.
    let done = tokio::select! {
        // After a freeze, the loss of the lock is noticed before the work continues.
        biased;
        lost = until_lost(&mut held, asked) => return Err(lost).during(|| "the lock was lost".to_owned()),
        done = work => done?,
    };
    held.rollback().await?;
    Ok(Some(done))
}

/// Returns an error when the lock is lost. `answered` is the send time of the last confirmed statement.
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
