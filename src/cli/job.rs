//! `dispatchq job list|show|cancel|run-now|reschedule`.

use std::{process::ExitCode, time::Duration};

use anyhow::Context;
use chrono::{DateTime, SecondsFormat, Utc};
use clap::{ArgGroup, ValueEnum};
use serde_json::json;
use workers::{
    InvalidJobId, JobId,
    store::{JobState, ParkedPlace},
};

use super::{
    output::{self, format_time_ms, or_dash},
    queue::check_known_queue,
};
use dispatch::{
    app::App,
    operator::job::{self, JobRefusal, OperateError, RescheduleTime},
};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Jobs of a queue, the earliest first
    #[command(after_help = "Example:\n  dispatchq job list dispatch-timeout-queue --state due --limit 20")]
    List {
        queue: String,
        #[arg(long, default_value = "due")]
        state: JobStateArg,
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
        /// Skip this many
        #[arg(long, default_value_t = 0)]
        offset: usize,
        #[arg(long)]
        json: bool,
    },
    /// Where one job is, and why
    Show {
        /// For example timeout:ORD-1:3
        #[arg(value_parser = parse_job_id)]
        id: JobId,
        #[arg(long)]
        json: bool,
    },
    /// Remove a waiting job that no row asks for; exit 1 if it stays
    #[command(
        after_help = "A job that its order, message or schedule asks for would be put back: end that instead.\n\n\
        Example:\n  dispatchq job cancel timeout:ORD-1:3"
    )]
    Cancel {
        /// For example timeout:ORD-1:3
        #[arg(value_parser = parse_job_id)]
        id: JobId,
        #[arg(long)]
        json: bool,
    },
    /// Let a waiting job run now; exit 1 if it cannot
    #[command(after_help = "The order's row decides: a timer that is not due by its row does nothing but wait on.\n\n\
        Example:\n  dispatchq job run-now notify:ORD-1:7")]
    RunNow {
        /// For example notify:ORD-1:7
        #[arg(value_parser = parse_job_id)]
        id: JobId,
        #[arg(long)]
        json: bool,
    },
    /// Let a waiting job run at another time; exit 1 if it cannot
    #[command(
        group = ArgGroup::new("when").required(true),
        after_help = "A timer may lie up to 60 s behind its row's deadline; later, the reconciler would move it back.\n\n\
            Examples:\n  dispatchq job reschedule notify:ORD-1:7 --in 90s\n  \
            dispatchq job reschedule notify:ORD-1:7 --at 2030-01-01T08:00:00Z"
    )]
    Reschedule {
        /// For example notify:ORD-1:7
        #[arg(value_parser = parse_job_id)]
        id: JobId,
        /// So long from now, as in 90s or "1h 30m"
        #[arg(long = "in", value_name = "DURATION", value_parser = humantime::parse_duration, group = "when")]
        delay: Option<Duration>,
        /// At this time, by the clock of Postgres
        #[arg(long, value_name = "RFC3339", value_parser = parse_time, group = "when")]
        at: Option<DateTime<Utc>>,
        #[arg(long)]
        json: bool,
    },
}

/// For `value_parser`: what is no job id is wrong usage.
pub(super) fn parse_job_id(text: &str) -> Result<JobId, InvalidJobId> {
    JobId::parse(text)
}

fn parse_time(text: &str) -> Result<DateTime<Utc>, String> {
    let at = DateTime::parse_from_rfc3339(text).map_err(|e| format!("{e}; write 2030-01-01T08:00:00Z"))?;
    Ok(at.to_utc())
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum JobStateArg {
    /// Waiting, due now or later
    Due,
    /// Waiting to run with nothing beside it: two of its deliveries were lost
    Suspect,
    /// Waiting in line for slots
    Parked,
    /// Running
    Leased,
    /// Given up
    Dead,
}

impl From<JobStateArg> for JobState {
    fn from(state: JobStateArg) -> Self {
        match state {
            JobStateArg::Due => Self::Due,
            JobStateArg::Suspect => Self::Suspect,
            JobStateArg::Parked => Self::Parked,
            JobStateArg::Leased => Self::Leased,
            JobStateArg::Dead => Self::Dead,
        }
    }
}

impl Command {
    pub(super) async fn run(self, app: App) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { queue, state, limit, offset, json } => {
                check_known_queue(&queue)?;
                let page = app.queue().list_jobs(&queue, state.into(), offset, usize::from(limit)).await?;
                if json {
                    output::print_json(&page)?;
                } else {
                    let rows = page.into_iter().map(|j| {
                        [j.id, format_time_ms(j.at_ms), j.failed.to_string(), j.lost.to_string(), or_dash(j.error)]
                    });
                    let at = match state {
                        JobStateArg::Due | JobStateArg::Suspect => "DUE",
                        JobStateArg::Parked => "SINCE",
                        JobStateArg::Leased => "LEASE ENDS",
                        JobStateArg::Dead => "DIED",
                    };
                    output::print_rows(&["JOB", at, "FAILED", "LOST", "ERROR"], rows, "No such jobs.");
                }
            }
            Self::Show { id, json } => {
                let job = app.queue().find_job(&id, &jobs::queues::ALL).await?.with_context(|| {
                    format!("no job {id}: it was never enqueued or has finished; see: dispatchq job list")
                })?;
                if json {
                    output::print_json(&job)?;
                } else {
                    println!("{:<10} {}\n{:<10} {}", "job", job.id, "queue", job.queue);
                    let state = match job.state {
                        JobState::Due => format!("due at {}", format_time_ms(job.at_ms)),
                        JobState::Suspect => format!("due at {}, with nothing beside it", format_time_ms(job.at_ms)),
                        JobState::Parked => match &job.parked {
                            Some(place) => describe_place(place),
                            None => format!("in line for slots since {}", format_time_ms(job.at_ms)),
                        },
                        JobState::Leased => format!("running; its lease ends at {}", format_time_ms(job.at_ms)),
                        JobState::Dead => format!("dead since {}", format_time_ms(job.at_ms)),
                    };
                    println!("{:<10} {state}\n{:<10} {} failed, {} lost", "state", "tries", job.failed, job.lost);
                    if let Some(end) = job.slots_end_ms {
                        println!("{:<10} until {}", "slots", format_time_ms(end));
                    }
                    if let Some(dead) = job.dead {
                        output::print_escaped(&format!("{:<10} {}", "error", dead.error));
                        println!("{:<10} dispatchq dead show {}", "see", job.id);
                    }
                }
            }
            Self::Cancel { id, json } => {
                return match job::cancel_job(&app, &id).await {
                    Ok(()) => print_done(&id, "CANCELLED", &format!("{id} is cancelled."), json),
                    Err(OperateError::Refused(refused)) => print_refusal(&id, &refused, json),
                    Err(error) => Err(error.into()),
                };
            }
            Self::RunNow { id, json } => {
                return reschedule_job(&app, &id, RescheduleTime::In(Duration::ZERO), json).await;
            }
            Self::Reschedule { id, delay, at, json } => {
                let when = at.map_or(RescheduleTime::In(delay.unwrap_or_default()), RescheduleTime::At);
                return reschedule_job(&app, &id, when, json).await;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn describe_place(place: &ParkedPlace) -> String {
    let since = format_time_ms(place.since_ms);
    match (&place.behind_own, &place.own_held_by) {
        (None, _) => format!("in line for slots of {} since {since}; {} before it", place.group, place.before),
        (Some(own), None) => format!("waits for the slot {own} since {since}"),
        (Some(own), Some(holder)) => format!("waits for the slot {own} since {since}; {holder} holds it"),
    }
}

async fn reschedule_job(app: &App, id: &JobId, when: RescheduleTime, json: bool) -> anyhow::Result<ExitCode> {
    let moved = match job::reschedule_job(app, id, when).await {
        Ok(moved) => moved,
        Err(OperateError::Refused(refused)) => return print_refusal(id, &refused, json),
        Err(error) => return Err(error.into()),
    };
    let time = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Millis, true);
    if json {
        let not_before = moved.not_before.map(time);
        output::print_json(
            &json!({ "id": id.as_str(), "result": "MOVED", "due": time(moved.due), "not_before": not_before }),
        )?;
    } else if when == RescheduleTime::In(Duration::ZERO) {
        println!("{id} is due now.");
    } else {
        println!("{id} is due at {}.", time(moved.due));
    }
    if let Some(not_before) = moved.not_before.filter(|_| !json) {
        eprintln!("Its row says {}: until then it will do nothing but wait on.", time(not_before));
    }
    Ok(ExitCode::SUCCESS)
}

fn print_done(id: &JobId, result: &str, text: &str, json: bool) -> anyhow::Result<ExitCode> {
    if json {
        output::print_json(&json!({ "id": id.as_str(), "result": result }))?;
    } else {
        println!("{text}");
    }
    Ok(ExitCode::SUCCESS)
}

/// The job stays as it is: programs read why on stdout, people on stderr.
fn print_refusal(id: &JobId, refused: &JobRefusal, json: bool) -> anyhow::Result<ExitCode> {
    if json {
        output::print_json(
            &json!({ "id": id.as_str(), "result": refused.error_code(), "message": refused.to_string() }),
        )?;
    } else {
        eprintln!("error: {refused}");
    }
    Ok(ExitCode::FAILURE)
}
