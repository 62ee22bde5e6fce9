//! Explanation of a dead letter for the person who decides on it.

use chrono::{DateTime, SecondsFormat, Utc};
use jobs::OrderId;
use model::{
    decide::{requeue::RequeueRefusal, timers::time_until},
    order::{Order, OrderStatus},
};
use serde::Serialize;

use crate::dead_letters::decide::{self, DeadJobSubject, DecisionOutcome};
use foundation::{
    core::Core,
    db,
    dead_letter_rows::{self, DeadLetterRow},
    error::ServiceError,
};
use notify::outbox::{self, DeliveryTry};
use orders::order_store::load;
use queue::{JobId, store::DeadEntry};

/// A dead letter and its subject.
#[derive(Debug, Serialize)]
pub struct ExplainedJob {
    #[serde(flatten)]
    pub entry: DeadEntry,
    /// Earlier deaths of the job, newest first, with the decisions on them.
    pub earlier: Vec<DeadLetterRow>,
    /// Latest delivery tries, if the job delivers a message.
    pub tries: Vec<DeliveryTry>,
    /// Order of the job, in one line.
    pub order: Option<OrderLine>,
    /// Message of the job, in one line.
    pub message: Option<String>,
    pub can_requeue: bool,
    /// Reason that the job cannot be requeued, or a further effect of a requeue.
    pub note: Option<String>,
    /// Refusal that a requeue of the job would get, for programs.
    pub refusal: Option<RequeueRefusal>,
}

#[derive(Debug, Serialize)]
pub struct OrderLine {
    pub id: OrderId,
    /// `None`: the order does not exist.
    pub status: Option<OrderStatus>,
    pub held_reason: Option<String>,
    pub text: String,
}

/// Explains a dead job. Returns `None` if the job is not dead.
pub async fn explain_job(core: &Core, job: &JobId) -> Result<Option<ExplainedJob>, ServiceError> {
    let Some(entry) = decide::find_dead(core, job).await? else { return Ok(None) };
    let deaths = dead_letter_rows::list_deaths(&core.db, job.as_str()).await?;
    let died_ms = entry.record.died_ms.cast_signed();
    let earlier = deaths.into_iter().filter(|death| death.died_at.timestamp_millis() < died_ms).collect();
    let mut explained = ExplainedJob {
        entry,
        earlier,
        tries: Vec::new(),
        order: None,
        message: None,
        can_requeue: true,
        note: None,
        refusal: None,
    };
    let subject = decide::subject_of(job);
    let message = match subject {
        DeadJobSubject::Message { outbox_id } => outbox::load_message(&core.db, outbox_id).await?,
        _ => None,
    };
    let order = match subject {
        DeadJobSubject::Timer(order) | DeadJobSubject::Alert { order, .. } => Some(order),
        DeadJobSubject::Message { .. } => message.as_ref().and_then(|row| row.subject.order_id().cloned()),
        DeadJobSubject::Other => None,
    };
    if let Some(order) = order {
        let now = db::database_now(&core.db).await?;
        let order_row = load::load_order(&core.db, &order).await?.map(|s| s.order);
        if order_row.as_ref().and_then(Order::dead_timer).as_ref() == Some(job) {
            explained.note = Some(format!("its death put {order} under review; a requeue resumes both"));
        }
        explained.order = Some(order_line(order, order_row, now));
    }
    if let Some(row) = message {
        let about = row.subject.binding_id().map(|id| format!(" of binding {id}")).unwrap_or_default();
        let expires = row.expires_at.to_rfc3339_opts(SecondsFormat::Secs, true);
        explained.message = Some(format!(
            "{}{about} over {}: {} after {} tries, expires at {expires}",
            row.content.kind, row.channel, row.state, row.attempts
        ));
        explained.tries = outbox::list_tries(&core.db, row.id).await?;
    }
    if let DecisionOutcome::Refused(refused) = decide::preview_requeue(core, job).await? {
        explained.can_requeue = false;
        explained.note = Some(refused.to_string());
        explained.refusal = Some(refused);
    }
    Ok(Some(explained))
}

fn order_line(id: OrderId, order: Option<Order>, now: DateTime<Utc>) -> OrderLine {
    let Some(order) = order else {
        return OrderLine { text: format!("{id}: order does not exist"), id, status: None, held_reason: None };
    };
    let mut text = format!("{id} is {}", order.status);
    if let Some(reason) = &order.held_reason {
        text += &format!(", under review: {reason}");
    }
    if order.status.is_searching() {
        text += &format!("; {} attempts", order.attempt_no);
        if order.lifetime_waived {
            text += "; its lifetime is waived";
        } else if now < order.lifetime_deadline {
            let left = std::time::Duration::from_secs(time_until(order.lifetime_deadline, now).as_secs());
            text += &format!("; its lifetime ends in {}", humantime::format_duration(left));
        } else {
            text += "; its lifetime is over";
        }
    }
    OrderLine { id, status: Some(order.status), held_reason: order.held_reason, text }
}
