//! `dispatchq job list|show`.

use std::process::ExitCode;

use anyhow::Context;
use clap::ValueEnum;
use workers::{JobId, store::JobState};

use super::{
    output::{self, or_dash, time_ms},
    queue::known,
};
use crate::app::App;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Jobs of a queue, the earliest first
    #[command(after_help = "Example:\n  dispatchq job list dispatch-timeout-queue --state due --limit 20")]
    List {
        queue: String,
        #[arg(long, default_value = "due")]
        state: State,
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
        id: String,
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum State {
    /// Waiting, due now or later
    Due,
    /// Running
    Leased,
    /// Given up
    Dead,
}

impl From<State> for JobState {
    fn from(state: State) -> Self {
        match state {
            State::Due => Self::Due,
            State::Leased => Self::Leased,
            State::Dead => Self::Dead,
        }
    }
}

impl Command {
    pub(super) async fn run(self, app: App) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { queue, state, limit, offset, json } => {
                known(&queue)?;
                let page = app.store.list(&queue, state.into(), offset, usize::from(limit)).await?;
                if json {
                    output::json(&page)?;
                } else {
                    let rows = page
                        .into_iter()
                        .map(|j| [j.id, time_ms(j.at_ms), j.failed.to_string(), j.lost.to_string(), or_dash(j.error)]);
                    let at = match state {
                        State::Due => "DUE",
                        State::Leased => "LEASE ENDS",
                        State::Dead => "DIED",
                    };
                    output::table(&["JOB", at, "FAILED", "LOST", "ERROR"], rows, "No such jobs.");
                }
            }
            Self::Show { id, json } => {
                let id = JobId::parse(id)?;
                let job = app.store.find(&id, &jobs::queues::ALL).await?.with_context(|| {
                    format!("no job {id}: it was never enqueued or has finished; see: dispatchq job list")
                })?;
                if json {
                    output::json(&job)?;
                } else {
                    println!("{:<10} {}\n{:<10} {}", "job", job.id, "queue", job.queue);
                    let state = match job.state {
                        JobState::Due => format!("due at {}", time_ms(job.at_ms)),
                        JobState::Leased => format!("running; its lease ends at {}", time_ms(job.at_ms)),
                        JobState::Dead => format!("dead since {}", time_ms(job.at_ms)),
                    };
                    println!("{:<10} {state}\n{:<10} {} failed, {} lost", "state", "tries", job.failed, job.lost);
                    if let Some(dead) = job.dead {
                        println!("{:<10} {}", "error", dead.error);
                    }
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
