//! `notify:{order}:{outbox id}`: delivers one message over one channel.
//!
//! The row decides: it holds the tries and when the next is due. At least once: if the process dies after the receiver
//! answered and before the row says so, the message is sent again under the same id.

use std::time::Duration;

use chrono::{SubsecRound, TimeDelta};
use jobs::Notify;
use rand::random;
use workers::{Outcome, RetryPolicy};

use super::{
    messages,
    outbox::{self, Delivery, OutboxRow},
};
use crate::{app::App, orders::timers, worker::step};

/// 1, 2, 4 ... up to 10 minutes; a message is given up when it expires, not after a number of tries.
const BACKOFF: RetryPolicy = RetryPolicy {
    max_tries: u32::MAX,
    initial: Duration::from_secs(1),
    multiplier: 2.0,
    max: Duration::from_secs(600),
    jitter: 0.3,
};

pub async fn perform(app: App, job: Notify) -> Outcome {
    let row = match outbox::load(&app.db, job.outbox_id).await {
        Ok(Some(row)) if row.state == "pending" => row,
        Ok(_) => return Outcome::done(),
        Err(e) => return step::database_failed(&e),
    };
    if row.now < row.next_attempt_at {
        return Outcome::Snooze { delay: timers::until(row.next_attempt_at, row.now) };
    }
    let delivery = deliver(&app, &row).await;
    if let Err(e) = outbox::record(&app.db, &row, &delivery).await {
        return step::database_failed(&e);
    }
    match delivery {
        Delivery::Delivered | Delivery::Expired => Outcome::done(),
        Delivery::Again(at, error) => {
            tracing::warn!(
                order.id = row.order_id,
                message.id = row.id,
                channel = row.channel,
                error,
                "A message did not arrive; it will be sent again."
            );
            Outcome::Snooze { delay: timers::until(at, row.now) }
        }
        Delivery::Dead(error) => Outcome::Dead(error),
    }
}

async fn deliver(app: &App, row: &OutboxRow) -> Delivery {
    let is_offer = row.kind == messages::OFFER;
    // Nobody is asked by an offer that has lapsed or was taken back meanwhile.
    if is_offer && (row.now >= row.expires_at || row.offer_is_live == Some(false)) {
        return Delivery::Expired;
    }
    let Err(error) = app.channels.deliver(&row.channel, row.id, &row.kind, &row.payload).await else {
        return Delivery::Delivered;
    };
    let tries = row.attempts.unsigned_abs() + 1;
    let pause = TimeDelta::from_std(BACKOFF.backoff(tries, random())).unwrap_or(TimeDelta::minutes(10));
    // Whole milliseconds, as the row keeps them: row and job name the same moment.
    let next = (row.now + pause).trunc_subsecs(3);
    if next < row.expires_at {
        Delivery::Again(next, error.to_string())
    } else if is_offer {
        // The attempt's own timeout goes on to the next driver.
        Delivery::Expired
    } else {
        Delivery::Dead(format!("given up after {tries} tries: {error}"))
    }
}
