//! `callback:{order}:{inbox id}`: acts on a callback that lies in the inbox.
//!
//! Usually the request that brought it has done so already, and there is no such job. It exists when that went wrong: the
//! process died, the order kept changing, the callback came before its booking was known.

use jobs::{ApplyCallback, OrderId};
use model::{
    decide::{Decision, timers},
    order::Snapshot,
};
use workers::Outcome;

use super::{
    BookingReference, decide, inbox,
    observation::{CallbackBody, Observation},
};
use crate::{
    app::App,
    crash, db,
    orders::commit::{self, ChangeError, ChangeOutcome},
    partner_client::settings::partner_rules,
};

pub async fn perform_callback(app: App, job: ApplyCallback) -> Outcome {
    process_callback(&app, &job.order, job.inbox_id).await
}

/// Acts on the callback as it lies in the inbox, once however often it is called. Answers what becomes of its job.
pub async fn process_callback(app: &App, order: &OrderId, inbox_id: i64) -> Outcome {
    let body = match inbox::load_pending(&app.db, inbox_id, order).await {
        Ok(Some(body)) => body,
        Ok(None) => return Outcome::done(),
        Err(e) => return db::database_failed(&*app.rng, &e),
    };
    match serde_json::from_value(body) {
        Ok(body) => process_body(app, order, inbox_id, &body).await,
        Err(e) => Outcome::Dead(format!("the callback cannot be read: {e}")),
    }
}

/// Acts on a callback whose body is known, be it because it has just been stored.
pub async fn process_body(app: &App, order: &OrderId, inbox_id: i64, body: &CallbackBody) -> Outcome {
    crash::reach_point("callback", "learnt");
    let changed = commit::change_order(app, order, |s| {
        let Some(partner) = s.order.partner.as_ref().and_then(|name| app.partners.get(name)) else {
            return Decision::Unchanged;
        };
        let Some(attempt_no) = attempt_of(s, body) else { return Decision::Unchanged };
        let policy = app.policy_for_order(&s.order);
        let observation = Observation::from_callback(attempt_no, body.clone());
        match decide::apply_observation(s, &observation, partner_rules(&policy, partner)) {
            Decision::Change(mut change) => {
                change.callback = Some((inbox_id, change.order.status.as_str()));
                Decision::Change(change)
            }
            decision => decision,
        }
    })
    .await;
    match changed {
        Ok(ChangeOutcome::Yes(after)) => Outcome::then_enqueue(timers::derive_jobs(&after)),
        Ok(ChangeOutcome::No(s)) => match inbox::ignore_callback(&app.db, inbox_id, "adds nothing").await {
            Ok(()) => {
                let mut s = *s;
                s.callbacks.retain(|c| c.id != inbox_id);
                Outcome::then_enqueue(timers::derive_jobs(&s))
            }
            Err(e) => db::database_failed(&*app.rng, &e),
        },
        Err(ChangeError::NotFound) => Outcome::done(),
        Err(ChangeError::Refused(refusal)) => Outcome::Retry(refusal.to_string()),
        Err(ChangeError::Busy) => Outcome::Snooze { delay: std::time::Duration::from_millis(100) },
        Err(ChangeError::Database(e)) => db::database_failed(&*app.rng, &e),
    }
}

/// Which attempt the callback is about: by its booking, else by our reference.
fn attempt_of(s: &Snapshot, body: &CallbackBody) -> Option<i32> {
    let by_booking = s.bookings.iter().find(|b| b.booking_id.as_ref() == Some(&body.booking_id));
    by_booking.map(|b| b.attempt_no).or_else(|| {
        let reference = body.reference.as_deref()?.parse::<BookingReference>().ok()?;
        (reference.order == s.order.id).then_some(reference.attempt_no)
    })
}
