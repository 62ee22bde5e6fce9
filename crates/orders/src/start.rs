//! Start of dispatch of scheduled orders. Design: docs/design/scheduled-orders.md.
//!
//! Admission decides now, as it does at the creation of other orders: Redis is the gate, and Postgres counts in the
//! transaction that starts dispatch. If the area has no room, the order stays SCHEDULED and asks again after the pause
//! between searches, until its lifetime ends.

use std::time::Duration;

use areas::admission::{
    place::{self, PlaceSeeker, StartPlace, WaitingPlace},
    waiting,
};
use model::{
    admission::decide::{AdmissionCaller, AdmissionRefusal},
    decide::{change::AreaRoom, schedule},
    order::{Order, Snapshot},
};
use queue::Outcome;

use crate::{
    capability::Orders,
    change::{ChangeError, decided},
    seen::{Basis, SeenOrder},
    step::Step,
};

/// Starts dispatch of a scheduled order if its area has room, or delays the start.
pub async fn start_or_delay(orders: &Orders, s: Snapshot) -> Result<Step, sqlx::Error> {
    if !schedule::is_start_due(&s) {
        return Ok(Step::write(schedule::await_start(&s), s));
    }
    match place::take_place_at_start(&orders.areas, seeker_of(&s.order), schedule::is_first_start(&s)).await {
        StartPlace::Taken(place) => start_dispatch(orders, s, place).await,
        StartPlace::Refused(why) => Ok(delay(orders, s, why)),
    }
}

pub(crate) fn seeker_of(order: &Order) -> PlaceSeeker<'_> {
    PlaceSeeker {
        order: &order.id,
        service_type: &order.service_type,
        pickup: order.pickup(),
        area: order.area_id.as_ref(),
        asker: AdmissionCaller {
            channel: order.channel.as_deref(),
            user: order.customer_id.as_deref(),
            loyalty: order.loyalty_level.as_ref().and_then(|level| level.parse().ok()),
        },
    }
}

async fn start_dispatch(orders: &Orders, s: Snapshot, place: WaitingPlace) -> Result<Step, sqlx::Error> {
    let verdict = place.verdict.map(|verdict| verdict.as_str().to_owned());
    let mut change = schedule::start_dispatch(&s, verdict);
    let (Some(area), Some(limit)) = (&place.area, place.limit) else {
        place::record_taken(&orders.areas, seeker_of(&s.order), &place);
        return Ok(Step::write(change, s));
    };
    change.room = Some(AreaRoom { area: area.clone(), limit });
    let basis = Basis::Seen(Box::new(SeenOrder::new(s.clone())));
    match orders.change(&s.order.id, basis, decided(change)).await {
        Ok(changed) if changed.is_written() => {
            place::record_taken(&orders.areas, seeker_of(&s.order), &place);
            Ok(Step::Finish(changed.into_outcome(orders).await))
        }
        Err(ChangeError::NoRoom) => {
            waiting::remove_order(&orders.core, area, &s.order.service_type, &s.order.id, None).await;
            if schedule::is_first_start(&s) {
                let full = AdmissionRefusal::Full;
                place::record_refused_start(&orders.areas, seeker_of(&s.order), area, full, None);
            }
            Ok(delay(orders, s, AdmissionRefusal::Full))
        }
        // Another change was written first. The row decides again.
        Ok(_) | Err(ChangeError::NotFound | ChangeError::Busy) => {
            Ok(Step::Finish(Outcome::Snooze { delay: Duration::ZERO }))
        }
        Err(ChangeError::Refused(refusal)) => Ok(Step::Finish(Outcome::Retry(refusal.to_string()))),
        Err(ChangeError::Database(error)) => Err(error),
    }
}

fn delay(orders: &Orders, s: Snapshot, why: AdmissionRefusal) -> Step {
    let pause = orders.areas.policy_for_order(&s.order).retry_after(1);
    let why = match why {
        AdmissionRefusal::Disabled => "the area is disabled",
        AdmissionRefusal::Forced => "the area is set to busy",
        AdmissionRefusal::Full => "the area is full",
    };
    Step::write(schedule::delay_start(&s, why, pause), s)
}
