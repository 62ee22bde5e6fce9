//! Requirement: docs/requirements/job-id-retrieval.md.
//!
//! `callback:{order}:{inbox id}`: handles a stored callback of a partner.

use jobs::ApplyCallback;

use partner::{callback, capability::Partners};
use queue::Outcome;

pub async fn perform_callback(partners: Partners, job: ApplyCallback) -> Outcome {
    callback::process_callback(&partners, &job.order, job.inbox_id).await
}
