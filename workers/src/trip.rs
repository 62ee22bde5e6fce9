//! Requirement: docs/requirements/reservation.md.
//!
//! `trip:{order}`: notifies support that the next step of a trip is overdue.

use jobs::ReportStaleTrip;
use model::decide::trip;

use orders::{capability::Orders, step};
use queue::{Job, Outcome};

pub async fn perform_trip(orders: Orders, job: ReportStaleTrip) -> Outcome {
    step::outcome_of(&orders.core, step::decide_sync(&orders, &job.order, &job.id(), trip::report_stale_trip).await)
}
