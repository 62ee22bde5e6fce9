//! Time of each key's last use, to the minute.
//!
//! A request only adds its key to a set in memory. A loop writes the set to Postgres every 20 seconds, so requests do
//! not wait. If the process dies, the uses since the last write are lost.

use std::{collections::HashSet, sync::Arc, time::Duration};

use foundation::db::Pool;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const WRITE_EVERY: Duration = Duration::from_secs(20);

/// Keys used since the last write. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct KeyUse(Arc<Mutex<HashSet<Uuid>>>);

impl KeyUse {
    /// Adds a key to the set.
    pub fn record_use(&self, key: Uuid) {
        self.0.lock().insert(key);
    }

    /// Writes the set to Postgres. A key's time is updated at most once a minute.
    pub async fn write_uses(&self, db: &Pool) -> Result<(), sqlx::Error> {
        let used = std::mem::take(&mut *self.0.lock());
        if used.is_empty() {
            return Ok(());
        }
        let mut ids: Vec<Uuid> = used.into_iter().collect();
        // All processes lock rows in the same order, which prevents deadlocks.
        ids.sort_unstable();
        sqlx::query(
            "-- write key use
             WITH used AS (SELECT id FROM api_keys
                           WHERE id = ANY($1)
                             AND (last_used_at IS NULL OR last_used_at < dispatchq_now() - interval '1 minute')
                           ORDER BY id FOR UPDATE SKIP LOCKED)
             UPDATE api_keys k SET last_used_at = dispatchq_now() FROM used WHERE k.id = used.id",
        )
        .bind(&ids)
        .execute(db)
        .await?;
        Ok(())
    }

    /// Writes the set every 20 seconds, and once more when `stop` is cancelled.
    pub async fn keep_written(self, db: Pool, stop: CancellationToken) {
        loop {
            let ends = stop.run_until_cancelled(tokio::time::sleep(WRITE_EVERY)).await.is_none();
            let written = tokio::time::timeout(WRITE_EVERY, self.write_uses(&db)).await;
            if let Ok(Err(error)) = written {
                tracing::debug!(%error, "The last use of keys could not be written.");
            }
            if ends {
                return;
            }
        }
    }
}
