//! `trip:{order}`: the next step of a trip is overdue; support is told.

use jobs::Trip;
use workers::{Job, Outcome};

use crate::{app::App, orders::trip, worker::step};

pub async fn perform(app: App, job: Trip) -> Outcome {
    step::decide_sync(&app, &job.order, &job.id(), trip::report_stale).await
}
