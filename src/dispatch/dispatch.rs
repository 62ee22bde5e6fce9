//! `dispatch:{order}:{n}`: starts attempt n.
//!
//! The offer, its delivery and the event are written in one transaction with the attempt's deadline; the timeout follows
//! as a job. If the process dies before the commit, the job runs again and asks afresh; after it, the repeated job is
//! superseded and puts the missing timeout back.

use jobs::Dispatch;
use workers::{Job, Outcome};

use super::decide;
use crate::{app::App, worker::step};

pub async fn perform(app: App, job: Dispatch) -> Outcome {
    step::with_candidates(&app, &job.order, &job.id(), decide::start).await
}
