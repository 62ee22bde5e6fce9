//! Common handling of failed calls to a partner.

use std::time::Duration;

use jobs::OrderId;
use model::{
    decide::timers,
    ids::PartnerName,
    messages::{self, PARTNER_REFUSES_KEY},
    partner::answer::CallError,
};

use crate::{
    capability::Partners,
    client::{ConfiguredPartner, settings},
};
use foundation::{core::Core, db};
use model::partner::backoff;
use notify::{alerts, outbox};
use queue::Outcome;

/// Pause for an order whose partner is no longer configured. The order waits for an operator and is checked twice a
/// minute.
const NOT_CONFIGURED_PAUSE: Duration = Duration::from_secs(30);

/// Returns a snooze until the breaker may close. The jitter only lengthens the delay; it spreads the jobs.
pub fn snooze_while_open(core: &Core, open_for: Duration) -> Outcome {
    Outcome::Snooze { delay: open_for.mul_f64(1.0 + 0.2 * core.rng.next_unit()) }
}

pub fn snooze_unconfigured(partner: &PartnerName) -> Outcome {
    tracing::error!(
        partner = partner.as_str(),
        "An order needs a partner that is not configured; add [partners.{partner}]."
    );
    Outcome::Snooze { delay: NOT_CONFIGURED_PAUSE }
}

/// Returns the pause after a failed call; `tries` is the number of failures so far. If the partner refuses our key,
/// notifies support once an hour.
pub async fn retry_pause(
    partners: &Partners,
    partner: &ConfiguredPartner,
    order: &OrderId,
    error: &CallError,
    tries: i32,
) -> Duration {
    let own = backoff::retry_pause(&partner.config.poll, tries, partners.core.rng.next_unit());
    match error {
        CallError::TooMany(pause) => own.max((*pause).min(Duration::from_secs(40))),
        CallError::Unauthorized(_) => {
            if let Err(error) = alert_once_an_hour(partners, partner, order, error).await {
                tracing::error!(partner = %partner.name, %error, "Support could not be notified that the partner refuses our key.");
            }
            own
        }
        _ => own,
    }
}

async fn alert_once_an_hour(
    partners: &Partners,
    partner: &ConfiguredPartner,
    order: &OrderId,
    error: &CallError,
) -> Result<(), sqlx::Error> {
    let mut tx = partners.core.db.begin().await?;
    if settings::claim_alert(&mut tx, &partner.name).await? {
        let now = db::database_now(&mut *tx).await?;
        let message = messages::partner_refuses_key(&partner.name, order, &error.to_string(), now);
        let written = outbox::insert_messages(&mut tx, &partners.config.notifications, order, &[message], now).await?;
        tx.commit().await?;
        alerts::record_order_alert(order, PARTNER_REFUSES_KEY);
        let timers = timers::message_timers(order, &written.messages, &written.alerts, now);
        let jobs: Vec<_> = timers.into_iter().map(|t| t.job).collect();
        if let Err(error) = partners.core.queue().enqueue(&jobs).await {
            tracing::warn!(%error, "An alert could not be enqueued; the reconciler will enqueue it.");
        }
    }
    Ok(())
}
