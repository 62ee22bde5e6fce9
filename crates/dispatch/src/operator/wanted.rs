//! Which row or schedule asks for a job. What is asked for is put back when it goes, and moved back when it lies too late.

use chrono::{DateTime, Utc};
use jobs::{Notify, OrderId, Tick};
use workers::{Job, JobId};

use crate::{
    app::App,
    notifications::outbox,
    orders::{Status, store, timers},
    periodic::schedule::Task,
};

/// Who asks for a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asker {
    Order {
        id: OrderId,
        status: Status,
    },
    /// A message of this order that is not delivered yet.
    Message {
        order: OrderId,
        expires_at: DateTime<Utc>,
    },
    Schedule(&'static str),
}

/// A job that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub by: Asker,
    /// When it is to run, by the row or schedule.
    pub due: DateTime<Utc>,
}

/// What asks for this job now. `None`: no row does.
pub async fn wanted(app: &App, job: &JobId) -> anyhow::Result<Option<Wanted>> {
    if let Ok(Notify { order, outbox_id }) = Notify::decode(job, None)
        && job.kind() == Notify::KIND
    {
        let row = outbox::load(&app.db, outbox_id).await?.filter(|row| row.state == "pending");
        return Ok(row
            .map(|row| Wanted { by: Asker::Message { order, expires_at: row.expires_at }, due: row.next_attempt_at }));
    }
    if job.kind() == Tick::KIND {
        return next_run(app, job).await;
    }
    let Some(order) = timers::order_of(job) else { return Ok(None) };
    let Some(s) = store::load(&app.db, &order).await? else { return Ok(None) };
    let timer = timers::derived(&s).into_iter().find(|timer| timer.id() == job);
    Ok(timer.map(|timer| Wanted { by: Asker::Order { id: order, status: s.order.status }, due: timer.due }))
}

async fn next_run(app: &App, job: &JobId) -> anyhow::Result<Option<Wanted>> {
    let Ok(tick) = Tick::decode(job, None) else { return Ok(None) };
    let scheduled = Task::ALL.into_iter().find(|task| task.name() == tick.schedule);
    let Some((task, schedule)) = scheduled.and_then(|task| Some((task, app.config.schedules.get(&task)?))) else {
        return Ok(None);
    };
    let now = store::now(&app.db).await?;
    if schedule.next_job(task, now)?.id != *job {
        return Ok(None);
    }
    Ok(Some(Wanted { by: Asker::Schedule(task.name()), due: schedule.next_after(now)? }))
}
