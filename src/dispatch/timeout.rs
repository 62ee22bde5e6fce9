//! `timeout:{order}:{n}`: ends attempt n once its deadline has passed and starts the next, in one transaction.
//!
//! Who is next is read from the offers table, never from a list inside a payload: a driver who went offline or took
//! another order meanwhile is not asked.

use jobs::Timeout;
use workers::{Job, Outcome};

use super::decide;
use crate::{app::App, worker::step};

pub async fn perform(app: App, job: Timeout) -> Outcome {
    step::with_candidates(&app, &job.order, &job.id(), decide::timeout).await
}
