//! `callback:{order}:{inbox id}`: acts on a callback that lies in the inbox.
//!
//! Usually the request that brought it has done so already, and there is no such job. It exists when that went wrong: the
//! process died, the order kept changing, the callback came before its booking was known.

use std::time::Duration;

use jobs::{ApplyCallback, OrderId};
use model::{
    decide::{Decision, timers},
    ids::PartnerName,
    order::{Booking, Snapshot},
};
use workers::Outcome;

use super::{
    BookingReference, decide, inbox,
    observation::{CallbackBody, Observation},
};
use crate::{
    admission::check,
    app::App,
    crash, db,
    orders::commit::{self, ChangeError, ChangeOutcome},
    partner_client::settings::partner_rules,
};

/// Others change the order, or act on the callback.
const BUSY_PAUSE: Duration = Duration::from_millis(100);

pub async fn perform_callback(app: App, job: ApplyCallback) -> Outcome {
    process_callback(&app, &job.order, job.inbox_id).await
}

/// Acts on the callback as it lies in the inbox, once however often it is called. Answers what becomes of its job.
pub async fn process_callback(app: &App, order: &OrderId, inbox_id: i64) -> Outcome {
    let (partner, body) = match inbox::load_pending(&app.db, inbox_id, order).await {
        Ok(Some(pending)) => pending,
        Ok(None) => return Outcome::done(),
        Err(e) => return db::database_failed(&*app.rng, &e),
    };
    match serde_json::from_value(body) {
        Ok(body) => process_body(app, order, inbox_id, &partner, &body).await,
        Err(e) => Outcome::Dead(format!("the callback cannot be read: {e}")),
    }
}

/// Acts on a callback of this partner whose body is known, be it because it has just been stored.
pub async fn process_body(
    app: &App,
    order: &OrderId,
    inbox_id: i64,
    partner: &PartnerName,
    body: &CallbackBody,
) -> Outcome {
    crash::reach_point("callback", "learnt");
    // How long the search pauses depends on how the order's area stands.
    let mut for_pause = None;
    if body.kind.may_pause_search() {
        match app.orders.load_order(order).await {
            Ok(Some(s)) => for_pause = Some(check::policy_for_pause(app, &s.order).await),
            Ok(None) => {}
            Err(e) => return db::database_failed(&*app.rng, &e),
        }
    }
    let changed = commit::change_order(app, order, |s| {
        let Some(partner) = app.partners.get(partner) else { return Decision::Unchanged };
        let Some(attempt_no) = attempt_of(s, &partner.name, body) else { return Decision::Unchanged };
        let policy = for_pause.clone().unwrap_or_else(|| app.policy_for_order(&s.order));
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
        Ok(changed @ ChangeOutcome::Yes(_)) => changed.into_job_outcome(),
        Ok(ChangeOutcome::No(s)) => match app.orders.ignore_callback(inbox_id, "adds nothing").await {
            Ok(true) => {
                let mut s = *s;
                s.callbacks.retain(|c| c.id != inbox_id);
                Outcome::then_enqueue(timers::derive_jobs(&s))
            }
            Ok(false) => Outcome::Snooze { delay: BUSY_PAUSE },
            Err(e) => db::database_failed(&*app.rng, &e),
        },
        Err(ChangeError::NotFound) => Outcome::done(),
        Err(ChangeError::Refused(refusal)) => Outcome::Retry(refusal.to_string()),
        Err(ChangeError::Busy) => Outcome::Snooze { delay: BUSY_PAUSE },
        Err(ChangeError::Database(e)) => db::database_failed(&*app.rng, &e),
    }
}

/// Which attempt the callback is about: by its booking, else by our reference. A partner speaks of its own bookings only;
/// two partners may give the same id.
fn attempt_of(s: &Snapshot, partner: &PartnerName, body: &CallbackBody) -> Option<i32> {
    let own: Vec<&Booking> = s.bookings.iter().filter(|b| b.partner == *partner).collect();
    let by_booking = own.iter().find(|b| b.booking_id.as_ref() == Some(&body.booking_id));
    by_booking.map(|b| b.attempt_no).or_else(|| {
        let reference = body.reference.as_deref()?.parse::<BookingReference>().ok()?;
        let is_own = reference.order == s.order.id && own.iter().any(|b| b.attempt_no == reference.attempt_no);
        is_own.then_some(reference.attempt_no)
    })
}
