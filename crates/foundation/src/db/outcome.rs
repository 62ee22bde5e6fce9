//! Outcome of a job whose statement failed.

use std::time::Duration;

use model::chance::Rng;

use super::is_transient;
use queue::{Outcome, retry::add_jitter};

const DATABASE_PAUSE: Duration = Duration::from_secs(1);

/// Returns the outcome for an error. While Postgres is unavailable, the job waits and loses no retry. A statement that
/// Postgres refuses is a bug and costs a retry.
pub fn database_failed(rng: &dyn Rng, error: &sqlx::Error) -> Outcome {
    if is_transient(error) { database_pause(rng) } else { Outcome::Retry(error.to_string()) }
}

/// Returns a snooze of about a second, after which Postgres may be back.
pub fn database_pause(rng: &dyn Rng) -> Outcome {
    Outcome::Snooze { delay: add_jitter(DATABASE_PAUSE, 0.5, rng.next_unit()) }
}
