//! `warn:{order}`: notifies dispatchers that a scheduled order has no driver shortly before its pickup.

use jobs::WarnOfPickup;
use model::decide::schedule;

use orders::{capability::Orders, step};
use queue::{Job, Outcome};

pub async fn perform_warning(orders: Orders, job: WarnOfPickup) -> Outcome {
    step::outcome_of(&orders.core, step::decide_sync(&orders, &job.order, &job.id(), schedule::warn_of_pickup).await)
}
