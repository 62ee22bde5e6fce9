//! `trip:{order}`: the next step of a trip is overdue; support is told.

use jobs::ReportStaleTrip;
use model::decide::trip;
use workers::{Job, Outcome};

use crate::{app::App, orders::step};

pub async fn perform_trip(app: App, job: ReportStaleTrip) -> Outcome {
    step::decide_sync(&app, &job.order, &job.id(), trip::report_stale_trip).await
}
