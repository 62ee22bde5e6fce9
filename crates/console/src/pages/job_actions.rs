//! Actions on one job: run now, reschedule, cancel. A dead job is requeued or discarded, as on the page of dead jobs.

use axum::{
    extract::{Form, Path, State, rejection::FormRejection},
    response::{IntoResponse, Response},
};
use desk::operator::{
    error::OperateError,
    job::{self, RescheduleTime},
};
use foundation::staff_actions::ActionAuthor;
use queue::{
    JobId,
    store::{JobDetail, JobState},
};
use serde::Deserialize;
use std::time::Duration;

use super::roles::OPERATORS;
use crate::{
    catalogue::tr,
    form::{encode_component, given_text, parse_time, read_form, write_query},
    page::go_back,
    page_error::PageError,
    session::SignedIn,
    shown::sentence,
    table::{Action, Field},
};
use app::App;

/// Returns the actions that the state of a job allows. The services check again.
pub(super) fn list_actions(job: &JobDetail) -> Vec<Action> {
    let at = |list: &str, word: &str| format!("/{list}/{}/{word}", encode_component(&job.id));
    let of_reason = |label, path| Action::new(label, path, vec![Field::reason()]);
    let mut actions = Vec::new();
    match job.state {
        JobState::Due | JobState::Suspect => {
            actions.push(of_reason(tr("jobs.run_now"), at("jobs", "run-now")));
            let fields = vec![Field { required: true, ..Field::time("at", tr("jobs.new_time"), "") }, Field::reason()];
            actions.push(Action::new(tr("jobs.reschedule"), at("jobs", "reschedule"), fields));
            actions.push(of_reason(tr("jobs.cancel"), at("jobs", "cancel")).danger());
        }
        JobState::Parked => actions.push(of_reason(tr("jobs.cancel"), at("jobs", "cancel")).danger()),
        JobState::Dead => {
            actions.push(of_reason(tr("queues.requeue_job"), at("dead", "requeue")));
            actions.push(of_reason(tr("queues.discard_job"), at("dead", "discard")).danger());
        }
        JobState::Leased => {}
    }
    actions
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct JobForm {
    /// New due time; only for a reschedule.
    at: String,
    reason: String,
}

/// Runs a waiting job now, moves it to another time, or cancels it.
pub(crate) async fn act_on_job(
    State(app): State<App>,
    person: SignedIn,
    Path((id, word)): Path<(String, String)>,
    form: Result<Form<JobForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&OPERATORS)?;
    let JobForm { at, reason } = read_form(form)?;
    let job = JobId::parse(id).map_err(|error| PageError::Invalid(error.to_string()))?;
    let reason = given_text(tr("common.reason"), &reason)?;
    let by = ActionAuthor { actor: &person.actor(), reason: Some(&reason) };
    let moved = async |when| job::reschedule_recorded(&app.desk, &job, when, by).await.map(drop);
    let (done, deed) = match word.as_str() {
        "run-now" => (moved(RescheduleTime::In(Duration::ZERO)).await, "job-run-now"),
        "reschedule" => {
            let at = parse_time(tr("jobs.new_time"), &at)?;
            let at = at.ok_or_else(|| PageError::Invalid(tr("jobs.choose_time").into()))?;
            (moved(RescheduleTime::At(at)).await, "job-rescheduled")
        }
        "cancel" => (job::cancel_recorded(&app.desk, &job, by).await, "job-cancelled"),
        _ => return Err(PageError::NotFound(tr("problem.action_not_exist"))),
    };
    done.map_err(refuse_action)?;
    let page = format!("/jobs{}", write_query(&[("id", job.as_str())]));
    Ok(go_back(&app.config, &page, deed).into_response())
}

fn refuse_action(error: OperateError) -> PageError {
    match error {
        OperateError::Refused(refusal) => PageError::Conflict(sentence(&refusal.to_string())),
        OperateError::Store(error) => error.into(),
        OperateError::Database(error) => error.into(),
        error @ (OperateError::TooLong | OperateError::Schedule(_)) => PageError::Invalid(sentence(&error.to_string())),
    }
}
