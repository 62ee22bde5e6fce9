//! Keeps the rules of areas in memory up to date.
//!
//! Every process reads the number of the latest change from Postgres every 400 ms and reloads all rules when the number
//! has changed. A change therefore reaches every replica within a second, and requests do not wait for it. While
//! Postgres is unavailable, the rules do not change.

use std::time::Duration;

use chrono::{DateTime, Utc};
use foundation::error::ServiceError;
use tokio_util::sync::CancellationToken;

use crate::{capability::Areas, rules::load_rules};

const LOOK_EVERY: Duration = Duration::from_millis(400);

impl Areas {
    /// Reloads the rules if they have changed. Returns whether they had changed.
    pub async fn reload_if_changed(&self) -> Result<bool, ServiceError> {
        let (revision, now): (i64, DateTime<Utc>) = sqlx::query_as(
            "-- admission revision
             SELECT number, dispatchq_now() FROM admission_revision",
        )
        .fetch_one(&self.core.db)
        .await?;
        self.core.database_clock.adjust(now);
        if self.rules.get().revision() == revision {
            return Ok(false);
        }
        let rules = load_rules(&self.core.db, &self.config.admission, &self.rules.get()).await?;
        self.rules.set(rules);
        Ok(true)
    }

    /// Keeps the rules of this process up to date until `stop` is cancelled.
    pub async fn keep_fresh(self, stop: CancellationToken) {
        let turns = self.core.loops.register_loop("rules");
        let mut failing = false;
        while !stop.is_cancelled() {
            let refreshed = turns.run_turn(self.reload_if_changed()).await;
            let refreshed =
                refreshed.unwrap_or_else(|| Err(ServiceError::Incomplete("Postgres did not respond".to_owned())));
            let fails = refreshed.is_err();
            match refreshed {
                Ok(true) => {
                    tracing::info!(
                        areas = self.rules.get().geofence.areas().len(),
                        "The rules of areas were reloaded."
                    );
                }
                Ok(false) => {}
                // Logs once per outage, not on every turn.
                Err(_) if failing => {}
                Err(error) => {
                    tracing::warn!(%error, "The rules of areas could not be reloaded; the old ones stay in effect.");
                }
            }
            failing = fails;
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }
}
