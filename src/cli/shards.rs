//! `dispatchq shards list|set|drain`.

use std::process::ExitCode;

use anyhow::{bail, ensure};
use serde::Serialize;

use super::{order::cli_operator, output};
use app::App;
use foundation::{
    shard_map::{self, ShardGeneration},
    staff_actions::ActionAuthor,
};
use maintenance::recovery::shards::{self, ShardStanding};
use model::input::parse_reason;
use queue::ShardCount;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// All shards that are open, what lies in each, and how far a change of their number is
    List {
        #[arg(long)]
        json: bool,
    },
    /// Spread the queue over another number of shards, while everything runs
    #[command(
        after_help = "Every process follows within a second; workers put the timers of all rows into their new shards. Nothing \
                            is copied and nothing waits. The next change is refused until this one is settled.\n\n\
                            Examples:\n  dispatchq shards set 4 --reason 'one core of Redis is busy'"
    )]
    Set {
        /// A power of two, 64 at most
        #[arg(value_name = "N", value_parser = parse_count)]
        count: ShardCount,
        /// Why; kept with who did it
        #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
        reason: Option<String>,
        #[arg(long)]
        json: bool,
    },
    /// After the number was lowered: move what is left in shards beyond it, and close them
    #[command(after_help = "Without this, what is left there ends by itself, each timer at its time.")]
    Drain {
        #[arg(long)]
        json: bool,
    },
}

/// What `list` and `drain` print as JSON.
#[derive(Debug, Serialize)]
struct ShardsView {
    generation: i64,
    shards: u16,
    derived: bool,
    settled: bool,
    made_by: String,
    reason: Option<String>,
    each: Vec<ShardStanding>,
}

impl Command {
    pub(super) async fn run(self, app: App) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { json } => print_shards(&app, json).await?,
            Self::Set { count, reason, json } => {
                let by = ActionAuthor { actor: &cli_operator(), reason: reason.as_deref() };
                let made = shards::change_number(&app.core, count, by).await?;
                if json {
                    app.core.shards.reload(&app.core.db).await?;
                    print_shards(&app, true).await?;
                } else {
                    println!(
                        "The queue has {} shard(s) from now on (generation {}). Workers put timers into their new shards; see: \
                         dispatchq shards list",
                        made.shards.get(),
                        made.generation
                    );
                }
            }
            Self::Drain { json } => return drain(&app, json).await,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn parse_count(text: &str) -> Result<ShardCount, String> {
    let count: u16 = text.parse().map_err(|_| format!("'{text}' is no number"))?;
    ShardCount::new(count).map_err(|error| error.to_string())
}

async fn drain(app: &App, json: bool) -> anyhow::Result<ExitCode> {
    let generation = shard_map::read_latest(&app.core.db).await?;
    if generation.settled_at.is_some() {
        if json {
            print_shards(app, true).await?;
        } else {
            println!("Nothing to drain: no shard is open beyond the {} there are.", generation.shards.get());
        }
        return Ok(ExitCode::SUCCESS);
    }
    ensure!(
        generation.derived_at.is_some(),
        "workers still put timers into their new shards (generation {}): does one run? See: dispatchq shards list",
        generation.generation
    );
    let drained = shards::drain_left_over(&app.core, &generation).await?;
    if json {
        print_shards(app, true).await?;
    } else {
        println!("{} jobs and {} dead letters were moved.", drained.moved, drained.dead);
    }
    if !drained.is_settled {
        bail!(
            "{} jobs are left in shards beyond the {} there are: they are being performed; repeat this",
            drained.left,
            generation.shards.get()
        );
    }
    Ok(ExitCode::SUCCESS)
}

async fn print_shards(app: &App, json: bool) -> anyhow::Result<()> {
    let latest = app.core.shards.reload(&app.core.db).await?;
    let each = shards::list_standings(&app.core).await;
    if json {
        return output::print_json(&view(latest, each));
    }
    let step = match (latest.derived_at, latest.settled_at) {
        (None, _) => "workers put timers into their new shards",
        (Some(_), None) => "jobs are left in shards beyond it; they end by themselves, or with: dispatchq shards drain",
        (Some(_), Some(_)) => "settled",
    };
    println!(
        "{} shard(s), generation {}, by {} at {}: {step}.\n",
        latest.shards.get(),
        latest.generation,
        latest.made_by,
        output::format_time(latest.made_at)
    );
    let number = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
    let rows = each.into_iter().map(|one| {
        let state = match (&one.error, one.epoch) {
            (Some(error), _) => error.clone(),
            (None, false) => "its timers are being put back".to_owned(),
            (None, true) if one.left_over => "left over".to_owned(),
            (None, true) => String::new(),
        };
        [one.shard.to_string(), number(one.due), number(one.scheduled), number(one.leased), number(one.dead), state]
    });
    output::print_rows(&["SHARD", "DUE", "SCHEDULED", "RUNNING", "DEAD", ""], rows, "No shards.");
    Ok(())
}

fn view(latest: ShardGeneration, each: Vec<ShardStanding>) -> ShardsView {
    ShardsView {
        generation: latest.generation,
        shards: latest.shards.get(),
        derived: latest.derived_at.is_some(),
        settled: latest.settled_at.is_some(),
        made_by: latest.made_by,
        reason: latest.reason,
        each,
    }
}
