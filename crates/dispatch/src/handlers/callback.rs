//! `callback:{order}:{inbox id}`: acts on a callback of a partner that lies in the inbox.
//! Requirement: docs/requirements/job-id-retrieval.md.

use jobs::ApplyCallback;
use workers::Outcome;

use crate::{capabilities::partners::Partners, partner::callback};

pub async fn perform_callback(partners: Partners, job: ApplyCallback) -> Outcome {
    callback::process_callback(&partners, &job.order, job.inbox_id).await
}
