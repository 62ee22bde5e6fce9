//! `dispatchq job` over the API.

use std::{process::ExitCode, time::Duration};

use anyhow::ensure;
use chrono::SecondsFormat;
use serde_json::{Value, json};

use super::{Command, JobStateArg, print_done, print_job, print_jobs, print_moved, print_refusal};
use crate::cli::{
    queue::check_known_queue,
    remote::{ApiClient, CallError, given_reason},
};
use queue::JobId;

/// Jobs of one page, as many as the API gives at once.
const PAGE: usize = 500;

impl Command {
    pub(in crate::cli) async fn run_over_api(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { queue, state, limit, offset, json } => {
                check_known_queue(&queue)?;
                print_jobs(&list_jobs(api, &queue, state, offset, usize::from(limit)).await?, state, json)?;
            }
            Self::Show { id, json } => print_job(&api.get(&["admin", "jobs", id.as_str()], &[]).await?, json)?,
            Self::Cancel { id, reason, json } => {
                let body = json!({ "reason": given_reason(reason)? });
                return match api.post(&["admin", "jobs", id.as_str(), "cancel"], &body).await {
                    Ok(_) => print_done(&id, "CANCELLED", &format!("{id} is cancelled."), json),
                    Err(error) => refuse(&id, error, json),
                };
            }
            Self::RunNow { id, reason, json } => {
                return reschedule(api, &id, json!({ "in_sec": 0, "reason": given_reason(reason)? }), json).await;
            }
            Self::Reschedule { id, delay, at, reason, json } => {
                let reason = given_reason(reason)?;
                let body = match at {
                    Some(at) => json!({ "at": at.to_rfc3339_opts(SecondsFormat::Millis, true), "reason": reason }),
                    None => json!({ "in_sec": whole_seconds(delay.unwrap_or_default())?, "reason": reason }),
                };
                return reschedule(api, &id, body, json).await;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn whole_seconds(delay: Duration) -> anyhow::Result<u64> {
    ensure!(delay.subsec_nanos() == 0, "over the API --in is a number of whole seconds, such as 90s");
    Ok(delay.as_secs())
}

/// Returns up to `most` jobs behind the first `offset`, page by page.
async fn list_jobs(
    api: &ApiClient,
    queue: &str,
    state: JobStateArg,
    mut offset: usize,
    most: usize,
) -> anyhow::Result<Value> {
    let mut jobs = Vec::new();
    while jobs.len() < most {
        let query = [
            ("queue", queue.to_owned()),
            ("state", state.as_str().to_owned()),
            ("offset", offset.to_string()),
            ("limit", PAGE.min(most - jobs.len()).to_string()),
        ];
        let mut page = api.get(&["admin", "jobs"], &query).await?;
        let Value::Array(found) = page["jobs"].take() else { break };
        jobs.extend(found);
        let Some(next) = page["next_offset"].as_u64() else { break };
        offset = usize::try_from(next)?;
    }
    Ok(Value::Array(jobs))
}

async fn reschedule(api: &ApiClient, id: &JobId, body: Value, json: bool) -> anyhow::Result<ExitCode> {
    let is_now = body["in_sec"] == 0;
    match api.post(&["admin", "jobs", id.as_str(), "reschedule"], &body).await {
        Ok(moved) => print_moved(id, &moved, is_now, json),
        Err(error) => refuse(id, error, json),
    }
}

/// Prints why the job stays as it is, with the words that the command on the servers uses.
fn refuse(id: &JobId, error: CallError, json: bool) -> anyhow::Result<ExitCode> {
    match error {
        CallError::Refused { code, message, .. } if is_about_the_job(&code) => {
            let result = match code.as_str() {
                "JOB_NOT_FOUND" => "ABSENT",
                code => code.strip_prefix("JOB_").unwrap_or(code),
            };
            print_refusal(id, result, &message, json)
        }
        other => Err(other.into()),
    }
}

fn is_about_the_job(code: &str) -> bool {
    code.starts_with("JOB_") || code == "TIME_HAS_PASSED"
}
