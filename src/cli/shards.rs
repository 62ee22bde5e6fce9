//! `dispatchq shards list|set|drain`.

use std::process::ExitCode;

use anyhow::ensure;
use serde_json::{Value, json};

use super::{
    output,
    remote::{
        ApiClient,
        fields::{list_items, show_field, show_time, sum_fields},
    },
};
use model::input::parse_reason;
use queue::ShardCount;

const PATH: [&str; 2] = ["admin", "shards"];

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// List open shards, their jobs, and the progress of a change of their number
    List {
        #[arg(long)]
        json: bool,
    },
    /// Change the number of shards without stopping anything
    #[command(
        after_help = "Every process applies the change within a second, and workers enqueue the timers of all rows in their new shards. No \
                            job is copied, and no order waits. The next change is refused until this one is settled.\n\n\
                            Examples:\n  dispatchq shards set 4 --reason 'one core of Redis is busy'"
    )]
    Set {
        /// Number of shards: a power of two, 64 at most
        #[arg(value_name = "N", value_parser = parse_count)]
        count: ShardCount,
        /// Reason, kept in the record with the actor
        #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
        reason: Option<String>,
        #[arg(long)]
        json: bool,
    },
    /// Move jobs out of shards beyond the current number, and close those shards
    #[command(after_help = "Without this command the remaining timers run in their old shards when they are due.")]
    Drain {
        #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
        reason: Option<String>,
        #[arg(long)]
        json: bool,
    },
}

impl Command {
    pub(super) async fn run(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { json } => print_shards(&api.get(&PATH, &[]).await?, json)?,
            Self::Set { count, reason, json } => {
                let change = json!({ "shards": count.get(), "reason": api.reason_of_change(reason)? });
                let made = api.put(&PATH, &change).await?;
                if json {
                    print_shards(&made, true)?;
                } else {
                    println!(
                        "The queue has {} shard(s) from now on (generation {}). Workers enqueue timers in their new shards; see: \
                         dispatchq shards list",
                        show_field(&made, "shards"),
                        show_field(&made, "generation")
                    );
                }
            }
            Self::Drain { reason, json } => drain(api, reason, json).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn parse_count(text: &str) -> Result<ShardCount, String> {
    let count: u16 = text.parse().map_err(|_| format!("'{text}' is not a number"))?;
    ShardCount::new(count).map_err(|error| error.to_string())
}

async fn drain(api: &ApiClient, reason: Option<String>, json: bool) -> anyhow::Result<()> {
    let describe = |answers: &[Value]| format!("{} jobs moved so far; continuing", sum_fields(answers, "moved"));
    let path = [&PATH[..], &["drain"]].concat();
    let answers = api.post_slices(&path, json!({ "reason": reason }), describe).await?;
    let drained = answers.last().unwrap_or(&Value::Null);
    let had_nothing = answers.first().is_some_and(|first| first["was_settled"] == true);
    let number = show_field(&drained["shards"], "shards");
    if json {
        print_shards(&drained["shards"], true)?;
    } else if had_nothing {
        println!("Nothing to drain: no shard beyond the first {number} is open.");
    } else {
        let [moved, dead] = ["moved", "dead"].map(|name| sum_fields(&answers, name));
        println!("{moved} jobs and {dead} dead letters were moved.");
    }
    let left = show_field(drained, "left");
    ensure!(
        drained["was_settled"] == true || drained["shards"]["settled"] == true,
        "{left} jobs remain in shards beyond the first {number} because they are running; repeat the command"
    );
    Ok(())
}

/// Prints shards in the format of the API.
fn print_shards(shown: &Value, json: bool) -> anyhow::Result<()> {
    if json {
        return output::print_json(shown);
    }
    let step = match (shown["derived"] == true, shown["settled"] == true) {
        (false, _) => "workers enqueue timers in their new shards",
        (true, false) => {
            "jobs remain in shards beyond that number; they run there when they are due, or move them: dispatchq shards drain"
        }
        (true, true) => "settled",
    };
    let [number, generation, made_by] = ["shards", "generation", "made_by"].map(|name| show_field(shown, name));
    let made_at = show_time(shown, "made_at");
    output::print_escaped(&format!("{number} shard(s), generation {generation}, by {made_by} at {made_at}: {step}."));
    println!();
    let rows = list_items(shown, "each").iter().map(|one| {
        let state = match one["error"].as_str() {
            Some(error) => error.to_owned(),
            None if one["epoch"] != true => "its timers are being put back".to_owned(),
            None if one["left_over"] == true => "left over".to_owned(),
            None => String::new(),
        };
        let [shard, due, scheduled, leased, dead] =
            ["shard", "due", "scheduled", "leased", "dead"].map(|name| show_field(one, name));
        [shard, due, scheduled, leased, dead, state]
    });
    output::print_rows(&["SHARD", "DUE", "SCHEDULED", "RUNNING", "DEAD", ""], rows, "No shards.");
    Ok(())
}
