//! Gives one dead job another life, or forgets it.
//!
//! Another life takes several steps, each of which may be the last before a crash: the order's row and history, the copy
//! in Postgres, Redis. In this order a crash leaves a dead job, or an order whose timers the reconciler puts back; doing
//! it again does the rest. So does doing it again when the job is gone but its order still is under review for it, or its
//! message given up.

use std::time::Duration;

use jobs::{Alarm, Escalate, Notify, OrderId, Remind};
use workers::{Job, JobId, store::DeadEntry};

use super::{
    requeue_policy::{self, Refused, Verdict},
    table::{self, How, Resolution},
};
use crate::{
    app::App,
    notifications::{alerts, outbox},
    orders::{
        Decision, Snapshot,
        store::{self, ChangeError, Changed},
        timers,
    },
    people::actor::Actor,
};

/// Who decides, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decider {
    pub who: Actor,
    pub why: Option<String>,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Done,
    /// It is not dead, or no longer; nothing changed.
    NotDead,
    Refused(Refused),
}

/// What a dead job is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Subject {
    Timer(OrderId),
    Message {
        order: OrderId,
        outbox_id: i64,
    },
    Alert {
        order: OrderId,
        alert_id: i64,
    },
    /// Periodic work, what asks its row itself, or nothing we know.
    Other,
}

pub(super) fn subject(job: &JobId) -> Subject {
    if job.kind() == Alarm::KIND {
        // It asks its order itself.
        return Subject::Other;
    }
    if job.kind() == Notify::KIND {
        return Notify::decode(job, None)
            .map_or(Subject::Other, |Notify { order, outbox_id }| Subject::Message { order, outbox_id });
    }
    if job.kind() == Escalate::KIND {
        return Escalate::decode(job, None)
            .map_or(Subject::Other, |Escalate { order, alert_id }| Subject::Alert { order, alert_id });
    }
    if job.kind() == Remind::KIND {
        return Remind::decode(job, None)
            .map_or(Subject::Other, |Remind { order, alert_id }| Subject::Alert { order, alert_id });
    }
    timers::order_of(job).map_or(Subject::Other, Subject::Timer)
}

/// The job as it lies among the dead.
pub(super) async fn find_dead(app: &App, job: &JobId) -> anyhow::Result<Option<DeadEntry>> {
    let found = app.store.find(job, &jobs::queues::ALL).await?;
    Ok(found.and_then(|found| Some(DeadEntry { id: found.id, record: found.dead? })))
}

/// What [`requeue`] would answer now.
pub async fn preview(app: &App, job: &JobId) -> anyhow::Result<Answer> {
    let is_dead = find_dead(app, job).await?.is_some();
    let (verdict, given_up) = match subject(job) {
        Subject::Other => (Verdict::Wanted, false),
        Subject::Timer(order) => match store::load(&app.db, &order).await? {
            Some(s) => {
                let verdict = requeue_policy::timer(&s, job);
                let held = requeue_policy::hold_cause(&s.order) == Some(job.as_str());
                (verdict, held)
            }
            None => (Verdict::Refused(Refused::NoOrder { order }), false),
        },
        Subject::Message { outbox_id, .. } => {
            let row = outbox::load(&app.db, outbox_id).await?;
            (requeue_policy::message(row.as_ref()), row.is_some_and(|row| row.state == "dead"))
        }
        Subject::Alert { alert_id, .. } => {
            let row = alerts::load(&app.db, alert_id).await?;
            (requeue_policy::alert(row.as_ref()), row.is_some_and(|row| row.gave_up_at.is_some()))
        }
    };
    Ok(match verdict {
        _ if !is_dead && !given_up => Answer::NotDead,
        Verdict::Refused(refused) => Answer::Refused(refused),
        Verdict::Wanted | Verdict::Held => Answer::Done,
    })
}

/// What [`discard`] would answer now.
pub async fn preview_discard(app: &App, job: &JobId) -> anyhow::Result<Answer> {
    Ok(if find_dead(app, job).await?.is_some() { Answer::Done } else { Answer::NotDead })
}

/// Gives a dead job another life, if its order or message still waits for it.
pub async fn requeue(app: &App, job: &JobId, by: &Decider) -> anyhow::Result<Answer> {
    let dead = find_dead(app, job).await?;
    match subject(job) {
        Subject::Timer(order) => requeue_timer(app, &order, job, dead.as_ref(), by).await,
        Subject::Message { order, outbox_id } => requeue_message(app, &order, outbox_id, job, dead.as_ref(), by).await,
        Subject::Alert { order, alert_id } => requeue_alert(app, &order, alert_id, job, dead.as_ref(), by).await,
        Subject::Other => {
            let Some(dead) = &dead else { return Ok(Answer::NotDead) };
            note_down(app, dead, How::Requeued, by).await?;
            app.store.requeue(&[job], &jobs::queues::ALL, Duration::ZERO).await?;
            Ok(Answer::Done)
        }
    }
}

async fn requeue_timer(
    app: &App,
    order: &OrderId,
    job: &JobId,
    dead: Option<&DeadEntry>,
    by: &Decider,
) -> anyhow::Result<Answer> {
    let mut answer = Answer::NotDead;
    let changed = store::change(app, order, |s: &Snapshot| {
        answer = match requeue_policy::timer(s, job) {
            _ if dead.is_none() && requeue_policy::hold_cause(&s.order) != Some(job.as_str()) => Answer::NotDead,
            Verdict::Refused(refused) => Answer::Refused(refused),
            Verdict::Wanted | Verdict::Held => {
                return requeue_policy::requeue(s, job, &by.who, by.why.as_deref()).into();
            }
        };
        Decision::Unchanged
    })
    .await;
    let after = match changed {
        Ok(Changed::Yes(after)) => after,
        Ok(Changed::No(_)) => return Ok(answer),
        Err(ChangeError::NotFound) if dead.is_some() => {
            return Ok(Answer::Refused(Refused::NoOrder { order: order.clone() }));
        }
        Err(ChangeError::NotFound) => return Ok(Answer::NotDead),
        Err(error) => return Err(error.into()),
    };
    if let Some(dead) = dead {
        note_down(app, dead, How::Requeued, by).await?;
    }
    let wanted = timers::derived_jobs(&after);
    if wanted.iter().any(|wanted| wanted.id == *job) {
        app.store.requeue(&[job], &jobs::queues::ALL, Duration::ZERO).await?;
    } else {
        // The timeout of an attempt that ended when its order was held: the search goes on with another job.
        app.store.discard(&[job], &jobs::queues::ALL).await?;
    }
    app.store.enqueue(&wanted).await?;
    Ok(Answer::Done)
}

async fn requeue_message(
    app: &App,
    order: &OrderId,
    outbox_id: i64,
    job: &JobId,
    dead: Option<&DeadEntry>,
    by: &Decider,
) -> anyhow::Result<Answer> {
    let row = outbox::load(&app.db, outbox_id).await?;
    if dead.is_none() && row.as_ref().is_none_or(|row| row.state != "dead") {
        return Ok(Answer::NotDead);
    }
    if let Verdict::Refused(refused) = requeue_policy::message(row.as_ref()) {
        return Ok(Answer::Refused(refused));
    }
    outbox::revive(&app.db, outbox_id, &by.who).await?;
    run_again(app, order, job, dead, by).await?;
    let now = store::now(&app.db).await?;
    app.store.enqueue(&[timers::message_timer(order, outbox_id, now, now).job]).await?;
    Ok(Answer::Done)
}

async fn requeue_alert(
    app: &App,
    order: &OrderId,
    alert_id: i64,
    job: &JobId,
    dead: Option<&DeadEntry>,
    by: &Decider,
) -> anyhow::Result<Answer> {
    let row = alerts::load(&app.db, alert_id).await?;
    if dead.is_none() && row.as_ref().is_none_or(|row| row.gave_up_at.is_none()) {
        return Ok(Answer::NotDead);
    }
    if let Verdict::Refused(refused) = requeue_policy::alert(row.as_ref()) {
        return Ok(Answer::Refused(refused));
    }
    alerts::resume(&app.db, alert_id).await?;
    run_again(app, order, job, dead, by).await?;
    app.store.enqueue(&alerts::derived_jobs(&app.db, order).await?).await?;
    Ok(Answer::Done)
}

/// Writes the decision into the order's history, and has the dead job run again.
async fn run_again(
    app: &App,
    order: &OrderId,
    job: &JobId,
    dead: Option<&DeadEntry>,
    by: &Decider,
) -> anyhow::Result<()> {
    let noted = store::change(app, order, |s| requeue_policy::requeue(s, job, &by.who, by.why.as_deref()).into());
    match noted.await {
        // What is about an order that never was has no history to write into.
        Ok(_) | Err(ChangeError::NotFound) => {}
        Err(error) => return Err(error.into()),
    }
    if let Some(dead) = dead {
        note_down(app, dead, How::Requeued, by).await?;
        app.store.requeue(&[job], &jobs::queues::ALL, Duration::ZERO).await?;
    }
    Ok(())
}

/// Forgets a dead job.
pub async fn discard(app: &App, job: &JobId, by: &Decider) -> anyhow::Result<Answer> {
    let Some(dead) = find_dead(app, job).await? else { return Ok(Answer::NotDead) };
    note_down(app, &dead, How::Discarded, by).await?;
    app.store.discard(&[job], &jobs::queues::ALL).await?;
    Ok(Answer::Done)
}

async fn note_down(app: &App, dead: &DeadEntry, how: How, by: &Decider) -> Result<(), sqlx::Error> {
    table::resolve(&app.db, dead, &Resolution { how, by: by.who.to_string(), why: by.why.clone() }).await
}
