//! `dispatchq job list|show|cancel|run-now|reschedule`.

use std::{process::ExitCode, time::Duration};

use anyhow::ensure;
use chrono::{DateTime, Datelike, SecondsFormat, Utc};
use clap::{ArgGroup, ValueEnum};
use model::{
    bounds::{DECADE, NONE},
    duration::parse_within,
    input::parse_reason,
};
use queue::{InvalidJobId, JobId};
use serde_json::{Value, json};

use super::{
    output,
    queue::check_known_queue,
    remote::{
        ApiClient, CallError,
        fields::{show_field, show_time_ms},
    },
};

/// Jobs per page: the maximum of the API.
const PAGE: usize = 500;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// List jobs of a queue, earliest first
    #[command(after_help = "Example:\n  dispatchq job list dispatch-timeout-queue --state due --limit 20")]
    List {
        /// Name of the queue; see: dispatchq queue list
        queue: String,
        /// State of the jobs
        #[arg(long, default_value = "due")]
        state: JobStateArg,
        /// Print at most this many jobs
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
        /// Skip this many jobs
        #[arg(long, default_value_t = 0)]
        offset: usize,
        /// Print JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Show the state of a job, and the reason for it
    Show {
        /// Id of the job, for example timeout:ORD-1:3
        #[arg(value_parser = parse_job_id)]
        id: JobId,
        /// Print JSON instead of lines
        #[arg(long)]
        json: bool,
    },
    /// Remove a waiting job that no row needs; exit 1 if it is not removed
    #[command(
        after_help = "If an order, message or schedule needs the job, it would be enqueued again: end the order, message or schedule instead.\n\n\
        Example:\n  dispatchq job cancel timeout:ORD-1:3"
    )]
    Cancel {
        /// Id of the job, for example timeout:ORD-1:3
        #[arg(value_parser = parse_job_id)]
        id: JobId,
        /// Reason, kept in the record; required with --api
        #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
        reason: Option<String>,
        /// Print JSON instead of a line
        #[arg(long)]
        json: bool,
    },
    /// Run a waiting job now; exit 1 if that is not possible
    #[command(after_help = "The order's row decides: a timer that is not due according to its row waits again.\n\n\
        Example:\n  dispatchq job run-now notify:ORD-1:7")]
    RunNow {
        /// Id of the job, for example notify:ORD-1:7
        #[arg(value_parser = parse_job_id)]
        id: JobId,
        /// Reason, kept in the record; required with --api
        #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
        reason: Option<String>,
        /// Print JSON instead of a line
        #[arg(long)]
        json: bool,
    },
    /// Run a waiting job at another time; exit 1 if that is not possible
    #[command(
        group = ArgGroup::new("when").required(true),
        after_help = "A timer may be up to 60 s later than the deadline in its row; if it is later, the reconciler moves it back.\n\n\
            Examples:\n  dispatchq job reschedule notify:ORD-1:7 --in 90s\n  \
            dispatchq job reschedule notify:ORD-1:7 --at 2030-01-01T08:00:00Z"
    )]
    Reschedule {
        /// Id of the job, for example notify:ORD-1:7
        #[arg(value_parser = parse_job_id)]
        id: JobId,
        /// Delay from now, such as 90s or "1h 30m"
        #[arg(long = "in", value_name = "DURATION", value_parser = parse_within(NONE..=DECADE), group = "when")]
        delay: Option<Duration>,
        /// Time to run at, on Postgres' clock
        #[arg(long, value_name = "RFC3339", value_parser = parse_time, group = "when")]
        at: Option<DateTime<Utc>>,
        /// Reason, kept in the record; required with --api
        #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
        reason: Option<String>,
        /// Print JSON instead of a line
        #[arg(long)]
        json: bool,
    },
}

/// Parses a job id. An invalid id is reported as wrong usage.
pub(super) fn parse_job_id(text: &str) -> Result<JobId, InvalidJobId> {
    JobId::parse(text)
}

fn parse_time(text: &str) -> Result<DateTime<Utc>, String> {
    let at = DateTime::parse_from_rfc3339(text).map_err(|e| format!("{e}; write 2030-01-01T08:00:00Z"))?;
    let at = at.to_utc();
    if (1970..=9999).contains(&at.year()) { Ok(at) } else { Err("must be in the years 1970 to 9999".to_owned()) }
}

#[derive(Debug, Clone, Copy, ValueEnum, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(super) enum JobStateArg {
    /// Waiting; due now or later
    Due,
    /// Waiting to run alone in its process, after two of its deliveries were lost
    Suspect,
    /// Waiting in line for slots
    Parked,
    /// Running
    Leased,
    /// Dead: no retries left
    Dead,
}

impl JobStateArg {
    /// Returns the name of the state in the API.
    fn as_str(self) -> &'static str {
        self.into()
    }
}

impl Command {
    pub(super) async fn run(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { queue, state, limit, offset, json } => {
                check_known_queue(&queue)?;
                print_jobs(&list_jobs(api, &queue, state, offset, usize::from(limit)).await?, state, json)?;
            }
            Self::Show { id, json } => print_job(&api.get(&["admin", "jobs", id.as_str()], &[]).await?, json)?,
            Self::Cancel { id, reason, json } => {
                let body = json!({ "reason": api.reason_of_change(reason)? });
                return match api.post(&["admin", "jobs", id.as_str(), "cancel"], &body).await {
                    Ok(_) => print_done(&id, "CANCELLED", &format!("{id} is cancelled."), json),
                    Err(error) => refuse(&id, error, json),
                };
            }
            Self::RunNow { id, reason, json } => {
                return reschedule(api, &id, json!({ "in_sec": 0, "reason": api.reason_of_change(reason)? }), json)
                    .await;
            }
            Self::Reschedule { id, delay, at, reason, json } => {
                let reason = api.reason_of_change(reason)?;
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

/// Prints jobs in the format of the API.
fn print_jobs(jobs: &Value, state: JobStateArg, json: bool) -> anyhow::Result<()> {
    if json {
        return output::print_json(jobs);
    }
    let rows = jobs.as_array().into_iter().flatten().map(|job| {
        [
            show_field(job, "id"),
            show_time_ms(job, "at_ms"),
            show_field(job, "failed"),
            show_field(job, "lost"),
            show_field(job, "error"),
        ]
    });
    let at = match state {
        JobStateArg::Due | JobStateArg::Suspect => "DUE",
        JobStateArg::Parked => "SINCE",
        JobStateArg::Leased => "LEASE ENDS",
        JobStateArg::Dead => "DIED",
    };
    output::print_rows(&["JOB", at, "FAILED", "LOST", "ERROR"], rows, "No such jobs.");
    Ok(())
}

/// Prints a job in the format of the API.
fn print_job(job: &Value, json: bool) -> anyhow::Result<()> {
    if json {
        return output::print_json(job);
    }
    let id = show_field(job, "id");
    let at = show_time_ms(job, "at_ms");
    let state = match job["state"].as_str().unwrap_or_default() {
        "due" => format!("due at {at}"),
        "suspect" => format!("due at {at}, to run alone"),
        "parked" if job["parked"].is_object() => describe_place(&job["parked"]),
        "parked" => format!("in line for slots since {at}"),
        "leased" => format!("running; its lease ends at {at}"),
        "dead" => format!("dead since {at}"),
        other => format!("{other} at {at}"),
    };
    let tries = format!("{} failed, {} lost", show_field(job, "failed"), show_field(job, "lost"));
    let mut lines = vec![("job", id.clone()), ("queue", show_field(job, "queue")), ("state", state), ("tries", tries)];
    if !job["slots_end_ms"].is_null() {
        lines.push(("slots", format!("until {}", show_time_ms(job, "slots_end_ms"))));
    }
    if job["dead"].is_object() {
        lines.push(("error", show_field(&job["dead"], "error")));
        lines.push(("see", format!("dispatchq dead show {id}")));
    }
    for (name, value) in lines {
        output::print_escaped(&format!("{name:<10} {value}"));
    }
    Ok(())
}

fn describe_place(place: &Value) -> String {
    let since = show_time_ms(place, "since_ms");
    match (place["behind_own"].as_str(), place["own_held_by"].as_str()) {
        (None, _) => {
            let (group, before) = (show_field(place, "group"), show_field(place, "before"));
            format!("in line for slots of {group} since {since}; {before} before it")
        }
        (Some(own), None) => format!("waiting for the slot {own} since {since}"),
        (Some(own), Some(holder)) => format!("waiting for the slot {own} since {since}; {holder} holds it"),
    }
}

/// Prints the new time of a job.
fn print_moved(id: &JobId, moved: &Value, is_now: bool, json: bool) -> anyhow::Result<ExitCode> {
    if json {
        output::print_json(moved)?;
        return Ok(ExitCode::SUCCESS);
    }
    if is_now {
        output::print_escaped(&format!("{id} is due now."));
    } else {
        output::print_escaped(&format!("{id} is due at {}.", show_field(moved, "due")));
    }
    if let Some(not_before) = moved["not_before"].as_str() {
        output::print_note(&format!(
            "According to its row it is due at {not_before}; if it runs earlier, it waits again."
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn print_done(id: &JobId, result: &str, text: &str, json: bool) -> anyhow::Result<ExitCode> {
    if json {
        output::print_json(&json!({ "id": id.as_str(), "result": result }))?;
    } else {
        output::print_escaped(text);
    }
    Ok(ExitCode::SUCCESS)
}

/// Reports that the job was not changed: as JSON on stdout, or as text on stderr.
fn print_refusal(id: &JobId, result: &str, message: &str, json: bool) -> anyhow::Result<ExitCode> {
    if json {
        output::print_json(&json!({ "id": id.as_str(), "result": result, "message": message }))?;
    } else {
        output::print_note(&format!("error: {message}"));
    }
    Ok(ExitCode::FAILURE)
}

fn whole_seconds(delay: Duration) -> anyhow::Result<u64> {
    ensure!(delay.subsec_nanos() == 0, "--in is a number of whole seconds, such as 90s");
    Ok(delay.as_secs())
}

/// Returns up to `most` jobs after the first `offset`, page by page.
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

/// Prints why the job was not changed. Other errors are returned.
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
