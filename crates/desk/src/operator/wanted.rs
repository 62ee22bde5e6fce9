//! Finds the row or schedule that needs a job. The reconciler enqueues such a job again after it was removed, and moves
//! it back if it is too late.

use chrono::{DateTime, Utc};
use jobs::{OrderId, PeriodicTick, SendNotification};
use model::{
    decide::timers,
    messages::{MessageSubject, OutboxState},
    order::OrderStatus,
};

use super::error::OperateError;
use crate::{capability::Desk, tick_schedule::next_job};
use foundation::db;
use notify::outbox;
use orders::order_store::load;
use queue::{Job, JobId};
use settings::ScheduledTask;

/// Source that needs a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobAsker {
    Order {
        id: OrderId,
        status: OrderStatus,
    },
    /// An undelivered message about this subject.
    Message {
        subject: MessageSubject,
        expires_at: DateTime<Utc>,
    },
    Schedule(&'static str),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedJob {
    pub by: JobAsker,
    /// Due time from the row or schedule.
    pub due: DateTime<Utc>,
}

/// Returns the order, message or schedule that needs this job now, with its due time.
pub async fn find_wanted_job(desk: &Desk, job: &JobId) -> Result<Option<WantedJob>, OperateError> {
    if let Ok(SendNotification { outbox_id, .. }) = SendNotification::decode(job, None)
        && job.kind() == SendNotification::KIND
    {
        let row = outbox::load_message(&desk.core.db, outbox_id).await?.filter(|row| row.state == OutboxState::Pending);
        return Ok(row.map(|row| WantedJob {
            by: JobAsker::Message { subject: row.subject, expires_at: row.expires_at },
            due: row.next_attempt_at,
        }));
    }
    if job.kind() == PeriodicTick::KIND {
        return next_run(desk, job).await;
    }
    let Some(order) = timers::order_of(job) else { return Ok(None) };
    let Some(s) = load::load_order(&desk.core.db, &order).await? else { return Ok(None) };
    let timer = timers::derive_timers(&s).into_iter().find(|timer| timer.id() == job);
    Ok(timer.map(|timer| WantedJob { by: JobAsker::Order { id: order, status: s.order.status }, due: timer.due }))
}

async fn next_run(desk: &Desk, job: &JobId) -> Result<Option<WantedJob>, OperateError> {
    let Ok(tick) = PeriodicTick::decode(job, None) else { return Ok(None) };
    let scheduled = ScheduledTask::ALL.into_iter().find(|task| task.name() == tick.schedule);
    let Some((task, schedule)) = scheduled.and_then(|task| Some((task, desk.config.schedules.get(&task)?))) else {
        return Ok(None);
    };
    let now = db::database_now(&desk.core.db).await?;
    if next_job(schedule, task, now)?.id != *job {
        return Ok(None);
    }
    Ok(Some(WantedJob { by: JobAsker::Schedule(task.name()), due: schedule.next_after(now)? + task.delay() }))
}
