//! Keeps the rules of areas in memory up to date.
//!
//! Every process asks Postgres twice a second for the number of the latest change, and reads all rules again when it has
//! grown. So a change reaches every replica within a second, and no request waits for it. While Postgres is away, the rules
//! stay as they were.

use std::time::Duration;

use chrono::{DateTime, Utc};
use foundation::error::ServiceError;
use tokio_util::sync::CancellationToken;

use crate::{capability::Areas, rules::load_rules};

const LOOK_EVERY: Duration = Duration::from_millis(400);

impl Areas {
    /// Reads everything again if it has changed. Returns whether it had.
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

    /// Keeps the rules of this process up to date until told to stop.
    pub async fn keep_fresh(self, stop: CancellationToken) {
        let turns = self.core.loops.register_loop("rules");
        let mut failing = false;
        while !stop.is_cancelled() {
            let refreshed = turns.run_turn(self.reload_if_changed()).await;
            let refreshed =
                refreshed.unwrap_or_else(|| Err(ServiceError::Incomplete("Postgres did not answer".to_owned())));
            let fails = refreshed.is_err();
            match refreshed {
                Ok(true) => {
                    tracing::info!(areas = self.rules.get().geofence.areas().len(), "The rules of areas were read.");
                }
                Ok(false) => {}
                // Said once, and not twice a second for as long as it lasts.
                Err(_) if failing => {}
                Err(error) => {
                    tracing::warn!(%error, "The rules of areas stay as they were.");
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
