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
    /// Dead jobs, queue by queue, in each the longest dead first
    List(list::Args),
    /// Why one job is dead, what it was about, and what can be done
    Show(show::Args),
    /// Give dead jobs another life; exit 1 if one of them stays dead
    ///
    /// A job runs again if its order or message still waits for it. An order that is under review because the job died
    /// goes on. Jobs of closed orders, superseded jobs, and those of orders whose lifetime is over stay dead, and are
    /// named with what to do instead.
    Requeue(decide::RequeueArgs),
    /// Forget dead jobs
    ///
    /// What its order still waits for is put back by the reconciler. An order under review stays there until a person
    /// decides: dispatchq order assign, redispatch, or cancel.
    Discard(decide::DiscardArgs),
}

/// Which dead jobs.
#[derive(Debug, Clone, Default, clap::Args)]
struct DeadFilterArgs {
    /// Only those of this queue
    #[arg(long, value_parser = queue_name_parser())]
    queue: Option<&'static str>,
    /// Only those whose error contains this text
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Only those dead for at least so long, as in 15m or "1h 30m"
    #[arg(long, value_name = "DURATION", value_parser = parse_within(NONE..=DECADE))]
    older_than: Option<Duration>,
}

impl DeadFilterArgs {
    /// The filter as parameters of the API.
    fn to_query(&self) -> Vec<(&'static str, String)> {
        let queue = self.queue.map(|queue| ("queue", queue.to_owned()));
        let error = self.error.clone().map(|error| ("error", error));
        let older_than = self.older_than.map(|age| ("older_than_sec", age.as_secs().to_string()));
        [queue, error, older_than].into_iter().flatten().collect()
    }
}

/// One of ours; shells complete it.
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
