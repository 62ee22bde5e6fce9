//! Requeues or discards one dead job.
//!
//! A requeue has several steps, and the process may die after each: the order's row and history, the copy in Postgres,
//! Redis. In this order, a crash leaves a dead job, or an order whose timers the reconciler restores. Repeating the
//! requeue completes it. This also works when the job is gone but its order is still under review because of it, or its
//! message is still given up.

use std::time::Duration;

use jobs::{EscalateAlert, OrderId, RemindDispatchers, SendAlarm, SendNotification};
use model::{
    actor::Actor,
    decide::{Decision, timers},
    messages::OutboxState,
    order::Snapshot,
};

use crate::{capability::Desk, dead_letters::requeue_policy};
use foundation::{
    core::Core,
    db,
    dead_letter_rows::{self, Resolution, ResolutionKind},
    error::ServiceError,
};
use model::decide::requeue::{RequeuePermission, RequeueRefusal};
use notify::{alerts, outbox};
use orders::{change::ChangeError, order_store::load, seen::Basis};
use queue::{Job, JobId, store::DeadEntry};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionAuthor {
    pub who: Actor,
    pub why: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecisionOutcome {
    Done,
    /// The job is not dead now; nothing was changed.
    NotDead,
    Refused(RequeueRefusal),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeadJobSubject {
    Timer(OrderId),
    /// The outbox row names the message's subject.
    Message {
        outbox_id: i64,
    },
    Alert {
        order: OrderId,
        alert_id: i64,
    },
    /// Periodic work, a job that reads its own row, or an unknown kind.
    Other,
}

pub fn subject_of(job: &JobId) -> DeadJobSubject {
    if job.kind() == SendAlarm::KIND {
        // This job reads its order itself.
        return DeadJobSubject::Other;
    }
    if job.kind() == SendNotification::KIND {
        return SendNotification::decode(job, None)
            .map_or(DeadJobSubject::Other, |SendNotification { outbox_id, .. }| DeadJobSubject::Message { outbox_id });
    }
    if job.kind() == EscalateAlert::KIND {
        return EscalateAlert::decode(job, None).map_or(DeadJobSubject::Other, |EscalateAlert { order, alert_id }| {
            DeadJobSubject::Alert { order, alert_id }
        });
    }
    if job.kind() == RemindDispatchers::KIND {
        return RemindDispatchers::decode(job, None).map_or(
            DeadJobSubject::Other,
            |RemindDispatchers { order, alert_id }| DeadJobSubject::Alert { order, alert_id },
        );
    }
    timers::order_of(job).map_or(DeadJobSubject::Other, DeadJobSubject::Timer)
}

pub(super) async fn find_dead(core: &Core, job: &JobId) -> Result<Option<DeadEntry>, ServiceError> {
    let found = core.queue().find_job(job, &jobs::queues::ALL).await?;
    Ok(found.and_then(|found| Some(DeadEntry { id: found.id, record: found.dead? })))
}

/// Returns the result that [`requeue_job`] would have now.
pub async fn preview_requeue(core: &Core, job: &JobId) -> Result<DecisionOutcome, ServiceError> {
    let is_dead = find_dead(core, job).await?.is_some();
    let (verdict, given_up) = match subject_of(job) {
        DeadJobSubject::Other => (RequeuePermission::Wanted, false),
        DeadJobSubject::Timer(order) => match load::load_order(&core.db, &order).await? {
            Some(s) => {
                let verdict = requeue_policy::check_timer(&s, job);
                let held = s.order.dead_timer().as_ref() == Some(job);
                (verdict, held)
            }
            None => (RequeuePermission::Refused(RequeueRefusal::NoOrder { order }), false),
        },
        DeadJobSubject::Message { outbox_id } => {
            let row = outbox::load_message(&core.db, outbox_id).await?;
            (requeue_policy::check_message(row.as_ref()), row.is_some_and(|row| row.state == OutboxState::Dead))
        }
        DeadJobSubject::Alert { alert_id, .. } => {
            let row = alerts::load_alert(&core.db, alert_id).await?;
            (requeue_policy::check_alert(row.as_ref()), row.is_some_and(|row| row.gave_up_at.is_some()))
        }
    };
    Ok(match verdict {
        _ if !is_dead && !given_up => DecisionOutcome::NotDead,
        RequeuePermission::Refused(refused) => DecisionOutcome::Refused(refused),
        RequeuePermission::Wanted | RequeuePermission::Held => DecisionOutcome::Done,
    })
}

/// Returns the result that [`discard_job`] would have now.
pub async fn preview_discard(core: &Core, job: &JobId) -> Result<DecisionOutcome, ServiceError> {
    Ok(if find_dead(core, job).await?.is_some() { DecisionOutcome::Done } else { DecisionOutcome::NotDead })
}

/// Requeues a dead job, if its order or message still needs it.
pub async fn requeue_job(desk: &Desk, job: &JobId, by: &DecisionAuthor) -> Result<DecisionOutcome, ServiceError> {
    let dead = find_dead(&desk.core, job).await?;
    match subject_of(job) {
        DeadJobSubject::Timer(order) => requeue_timer(desk, &order, job, dead.as_ref(), by).await,
        DeadJobSubject::Message { outbox_id } => requeue_message(desk, outbox_id, job, dead.as_ref(), by).await,
        DeadJobSubject::Alert { order, alert_id } => {
            requeue_alert(desk, &order, alert_id, job, dead.as_ref(), by).await
        }
        DeadJobSubject::Other => {
            let Some(dead) = &dead else { return Ok(DecisionOutcome::NotDead) };
            record_resolution(&desk.core, dead, ResolutionKind::Requeued, by).await?;
            desk.core.queue().requeue(&[job], &jobs::queues::ALL, Duration::ZERO).await?;
            Ok(DecisionOutcome::Done)
        }
    }
}

async fn requeue_timer(
    desk: &Desk,
    order: &OrderId,
    job: &JobId,
    dead: Option<&DeadEntry>,
    by: &DecisionAuthor,
) -> Result<DecisionOutcome, ServiceError> {
    let mut answer = DecisionOutcome::NotDead;
    let changed = desk
        .orders
        .change(order, Basis::Fresh, |s: &Snapshot| {
            answer = match requeue_policy::check_timer(s, job) {
                _ if dead.is_none() && s.order.dead_timer().as_ref() != Some(job) => DecisionOutcome::NotDead,
                RequeuePermission::Refused(refused) => DecisionOutcome::Refused(refused),
                RequeuePermission::Wanted | RequeuePermission::Held => {
                    return requeue_policy::requeue_change(s, job, &by.who, by.why.as_deref()).into();
                }
            };
            Decision::Unchanged
        })
        .await;
    let after = match changed {
        Ok(changed) if changed.is_written() => changed.publish(&desk.orders).await,
        Ok(_) => return Ok(answer),
        Err(ChangeError::NotFound) if dead.is_some() => {
            return Ok(DecisionOutcome::Refused(RequeueRefusal::NoOrder { order: order.clone() }));
        }
        Err(ChangeError::NotFound) => return Ok(DecisionOutcome::NotDead),
        Err(error) => return Err(error.into()),
    };
    if let Some(dead) = dead {
        record_resolution(&desk.core, dead, ResolutionKind::Requeued, by).await?;
    }
    let wanted = timers::derive_jobs(&after);
    if wanted.iter().any(|wanted| wanted.id == *job) {
        desk.core.queue().requeue(&[job], &jobs::queues::ALL, Duration::ZERO).await?;
    } else {
        // The job is the timeout of an attempt that ended when its order was put on hold. The search continues with
        // another job.
        desk.core.queue().discard(&[job], &jobs::queues::ALL).await?;
    }
    desk.core.queue().enqueue(&wanted).await?;
    Ok(DecisionOutcome::Done)
}

async fn requeue_message(
    desk: &Desk,
    outbox_id: i64,
    job: &JobId,
    dead: Option<&DeadEntry>,
    by: &DecisionAuthor,
) -> Result<DecisionOutcome, ServiceError> {
    let row = outbox::load_message(&desk.core.db, outbox_id).await?;
    if dead.is_none() && row.as_ref().is_none_or(|row| row.state != OutboxState::Dead) {
        return Ok(DecisionOutcome::NotDead);
    }
    if let RequeuePermission::Refused(refused) = requeue_policy::check_message(row.as_ref()) {
        return Ok(DecisionOutcome::Refused(refused));
    }
    let Some(row) = row else { return Ok(DecisionOutcome::Refused(RequeueRefusal::NoMessage)) };
    outbox::revive_message(&desk.core.db, outbox_id, &by.who).await?;
    run_again(desk, row.subject.order_id(), job, dead, by).await?;
    let now = db::database_now(&desk.core.db).await?;
    desk.core.queue().enqueue(&[timers::message_timer(row.subject.to_id(), outbox_id, now, now).job]).await?;
    Ok(DecisionOutcome::Done)
}

async fn requeue_alert(
    desk: &Desk,
    order: &OrderId,
    alert_id: i64,
    job: &JobId,
    dead: Option<&DeadEntry>,
    by: &DecisionAuthor,
) -> Result<DecisionOutcome, ServiceError> {
    let row = alerts::load_alert(&desk.core.db, alert_id).await?;
    if dead.is_none() && row.as_ref().is_none_or(|row| row.gave_up_at.is_none()) {
        return Ok(DecisionOutcome::NotDead);
    }
    if let RequeuePermission::Refused(refused) = requeue_policy::check_alert(row.as_ref()) {
        return Ok(DecisionOutcome::Refused(refused));
    }
    alerts::resume_alert(&desk.core.db, alert_id).await?;
    run_again(desk, Some(order), job, dead, by).await?;
    desk.core.queue().enqueue(&alerts::derived_jobs(&desk.core.db, order).await?).await?;
    Ok(DecisionOutcome::Done)
}

/// Records the decision in the order's history, if the job has an order, and requeues the dead job.
async fn run_again(
    desk: &Desk,
    order: Option<&OrderId>,
    job: &JobId,
    dead: Option<&DeadEntry>,
    by: &DecisionAuthor,
) -> Result<(), ServiceError> {
    if let Some(order) = order {
        let noted = desk
            .orders
            .change(order, Basis::Fresh, |s| requeue_policy::requeue_change(s, job, &by.who, by.why.as_deref()).into());
        match noted.await {
            Ok(noted) => {
                noted.publish(&desk.orders).await;
            }
            // An order that does not exist has no history.
            Err(ChangeError::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if let Some(dead) = dead {
        record_resolution(&desk.core, dead, ResolutionKind::Requeued, by).await?;
        desk.core.queue().requeue(&[job], &jobs::queues::ALL, Duration::ZERO).await?;
    }
    Ok(())
}

pub async fn discard_job(core: &Core, job: &JobId, by: &DecisionAuthor) -> Result<DecisionOutcome, ServiceError> {
    let Some(dead) = find_dead(core, job).await? else { return Ok(DecisionOutcome::NotDead) };
    record_resolution(core, &dead, ResolutionKind::Discarded, by).await?;
    core.queue().discard(&[job], &jobs::queues::ALL).await?;
    Ok(DecisionOutcome::Done)
}

async fn record_resolution(
    core: &Core,
    dead: &DeadEntry,
    how: ResolutionKind,
    by: &DecisionAuthor,
) -> Result<(), sqlx::Error> {
    dead_letter_rows::resolve_job(&core.db, dead, &Resolution { how, by: by.who.to_string(), why: by.why.clone() })
        .await
}
