//! What every timer of an order has in common.
//!
//! A job is a hint, the row decides. Load the row; the job is not among those the row asks for: it is superseded, write
//! nothing and return the jobs that must exist (which heals a crash between commit and settle). Past the lifetime
//! without a driver: whatever the job, the order ends. Not due by the row: snooze. Otherwise decide, write on condition
//! that nobody was quicker, and return the jobs of the row as it now is.

use std::time::Duration;

use jobs::OrderId;
use workers::{JobId, Outcome, retry::jittered};

use crate::{
    app::App,
    dispatch::{candidates, decide, policy::DispatchPolicy},
    orders::{
        Change, Snapshot,
        store::{self, ApplyError},
        timers,
    },
};

/// Times a step starts over because somebody changed the order first.
const MAX_CONFLICTS: usize = 5;
const CONFLICT_PAUSE: Duration = Duration::from_millis(100);
const DATABASE_PAUSE: Duration = Duration::from_secs(1);

/// A step decided by the order alone.
pub async fn alone(app: &App, order: &OrderId, job: &JobId, decide: impl Fn(&Snapshot) -> Change) -> Outcome {
    settled(try_alone(app, order, job, decide).await)
}

/// As [`alone`], for a step that has more to do when the database fails.
pub async fn try_alone(
    app: &App,
    order: &OrderId,
    job: &JobId,
    decide: impl Fn(&Snapshot) -> Change,
) -> Result<Outcome, sqlx::Error> {
    run(app, order, job, Search::No, |s, _, _| decide(s)).await
}

/// A step that also needs to know who could be asked.
pub async fn with_candidates(
    app: &App,
    order: &OrderId,
    job: &JobId,
    decide: impl Fn(&Snapshot, Vec<(String, f64)>, &DispatchPolicy) -> Change,
) -> Outcome {
    settled(run(app, order, job, Search::Yes, decide).await)
}

fn settled(result: Result<Outcome, sqlx::Error>) -> Outcome {
    result.unwrap_or_else(|error| database_failed(&error))
}

enum Search {
    Yes,
    No,
}

async fn run(
    app: &App,
    order: &OrderId,
    job: &JobId,
    search: Search,
    decide: impl Fn(&Snapshot, Vec<(String, f64)>, &DispatchPolicy) -> Change,
) -> Result<Outcome, sqlx::Error> {
    for _ in 0..MAX_CONFLICTS {
        let Some(s) = store::load(&app.db, order).await? else {
            tracing::warn!(order.id = %order, job.id = %job, "The order of this job does not exist; the job is dropped.");
            return Ok(Outcome::done());
        };
        let Some(timer) = timers::derived(&s).into_iter().find(|t| t.id() == job) else {
            return Ok(Outcome::then(timers::derived_jobs(&s)));
        };
        let change = if s.order.is_past_lifetime(s.now) {
            decide::lifetime(&s)
        } else if !timer.is_due(s.now) {
            return Ok(Outcome::Snooze { delay: timers::until(timer.due, s.now) });
        } else {
            let policy = app.config.policy(&s.order.service_type);
            let ranked = match search {
                Search::No => Vec::new(),
                Search::Yes => candidates::ranked(&app.db, &s.order, &policy).await?,
            };
            decide(&s, ranked, &policy)
        };
        match store::apply(&app.db, &app.config.notifications, &s, change).await {
            Ok(after) => return Ok(Outcome::then(timers::derived_jobs(&after))),
            Err(ApplyError::Conflict) => {}
            Err(ApplyError::Refused(refusal)) => return Ok(Outcome::Retry(refusal.to_string())),
            Err(ApplyError::Database(e)) => return Err(e),
        }
    }
    tracing::debug!(order.id = %order, job.id = %job, "The order keeps changing; the job waits a moment.");
    Ok(Outcome::Snooze { delay: jittered(CONFLICT_PAUSE, 0.5, rand::random()) })
}

/// Postgres away is nobody's fault and spends no try; a statement that Postgres refuses is a bug, and dies of it.
pub fn database_failed(error: &sqlx::Error) -> Outcome {
    if is_unreachable(error) {
        Outcome::Snooze { delay: jittered(DATABASE_PAUSE, 0.5, rand::random()) }
    } else {
        Outcome::Retry(error.to_string())
    }
}

/// May it pass by itself?
pub fn is_unreachable(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(e) => e.code().is_some_and(|code| {
            // connection, resources, operator intervention (restart, timeout), serialization and locks
            ["08", "53", "57", "40", "55"].iter().any(|class| code.starts_with(class))
        }),
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => true,
        _ => false,
    }
}
