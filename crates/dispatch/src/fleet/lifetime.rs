//! `lifetime:{order}`: ends an order that found no driver in time. COMPENSATING is written first; what that means for
//! the payment is the compensate job's work.

use jobs::ExpireOrder;
use model::fleet::decide;
use workers::{Job, Outcome};

use crate::{app::App, orders::step};

pub async fn perform_lifetime(app: App, job: ExpireOrder) -> Outcome {
    step::decide_sync(&app, &job.order, &job.id(), decide::end_lifetime).await
}
