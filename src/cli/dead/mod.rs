//! `dispatchq dead list|show|requeue|discard`.

mod decide;
mod list;
mod show;

use std::{process::ExitCode, time::Duration};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use model::{
    bounds::{DECADE, NONE},
    duration::parse_within,
};

use crate::cli::remote::ApiClient;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// List dead jobs by queue, oldest first
    List(list::Args),
    /// Show a dead job: its error, its order or message, and what can be done
    Show(show::Args),
    /// Requeue dead jobs; exit 1 if one of them stays dead
    ///
    /// A job runs again if its order or message still waits for it. An order that is under review because the job died
    /// leaves the review. Jobs of closed orders, superseded jobs, and jobs of orders past their lifetime stay dead. The
    /// command lists them with the action to take instead.
    Requeue(decide::RequeueArgs),
    /// Discard dead jobs
    ///
    /// If the order still waits for the job, the reconciler enqueues it again. An order under review stays under review
    /// until a person decides: dispatchq order assign, redispatch, or cancel.
    Discard(decide::DiscardArgs),
}

/// Filter of dead jobs.
#[derive(Debug, Clone, Default, clap::Args)]
struct DeadFilterArgs {
    /// Only jobs of this queue
    #[arg(long, value_parser = queue_name_parser())]
    queue: Option<&'static str>,
    /// Only jobs whose error contains this text
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Only jobs that died at least this long ago, such as 15m or "1h 30m"
    #[arg(long, value_name = "DURATION", value_parser = parse_within(NONE..=DECADE))]
    older_than: Option<Duration>,
}

impl DeadFilterArgs {
    /// Returns the filter as query parameters of the API.
    fn to_query(&self) -> Vec<(&'static str, String)> {
        let queue = self.queue.map(|queue| ("queue", queue.to_owned()));
        let error = self.error.clone().map(|error| ("error", error));
        let older_than = self.older_than.map(|age| ("older_than_sec", age.as_secs().to_string()));
        [queue, error, older_than].into_iter().flatten().collect()
    }
}

/// Accepts only names of known queues. Shells complete them.
fn queue_name_parser() -> impl TypedValueParser<Value = &'static str> {
    let known = PossibleValuesParser::new(jobs::queues::ALL);
    known.map(|text| jobs::queues::ALL.into_iter().find(|queue| *queue == text).unwrap_or_default())
}

impl Command {
    pub(super) async fn run(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        match self {
            Self::List(args) => args.run(api).await,
            Self::Show(args) => args.run(api).await,
            Self::Requeue(args) => args.run(api).await,
            Self::Discard(args) => args.run(api).await,
        }
    }
}
