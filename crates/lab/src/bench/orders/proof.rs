//! Processor time and lag of the continuous proof during a run.

use std::{sync::Arc, time::Duration};

use foundation::db::Pool;
use maintenance::proof::status::read_status;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::task::AbortOnDropHandle;

use crate::bench::spread::{SamplePercentiles, duration_micros, round_to_digits};

const EVERY: Duration = Duration::from_secs(1);

/// Lag of the proof, read once a second.
pub(super) struct ProofWatch {
    db: Pool,
    lags: Arc<Mutex<Vec<i64>>>,
    _watched: AbortOnDropHandle<()>,
}

impl ProofWatch {
    pub(super) fn start(db: &Pool) -> Self {
        let lags = Arc::<Mutex<Vec<i64>>>::default();
        let watched = tokio::spawn(watch_lag(db.clone(), lags.clone()));
        Self { db: db.clone(), lags, _watched: AbortOnDropHandle::new(watched) }
    }

    /// Returns the steps, the processor time of the fold in ms an order, and the lag in ms.
    pub(super) async fn finish(self, orders: u64) -> anyhow::Result<Value> {
        let status = read_status(&self.db).await?;
        let ms_per_order = status.cpu_us as f64 / 1000.0 / orders.max(1) as f64;
        Ok(json!({
            "steps": status.steps,
            "cpu_ms_per_order": round_to_digits(ms_per_order, 4),
            "lag_ms": SamplePercentiles::from_samples(std::mem::take(&mut self.lags.lock())).to_json_ms(),
        }))
    }
}

async fn watch_lag(db: Pool, lags: Arc<Mutex<Vec<i64>>>) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // Before the first slice the place has the age of the database.
        if let Ok(status) = read_status(&db).await
            && status.steps > 0
        {
            lags.lock().push(duration_micros(Duration::from_secs_f64(status.lag_seconds)));
        }
    }
}
