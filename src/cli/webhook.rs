//! `dispatchq webhook list|create|test|rotate|pause|resume|deliveries|replay|delete`. docs/EVENTS.md describes endpoints.

use std::{process::ExitCode, time::Duration};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::{
    consent::ask_at_once,
    output,
    remote::{
        ApiClient, ListedItems, PageNames,
        fields::{show_field, show_time},
    },
};
use model::{bounds::NONE, duration::parse_within, input::parse_reason};

const ENDPOINTS: &str = "webhook-endpoints";
/// Maximum time that the old secret also signs.
const LONGEST_OVERLAP: Duration = Duration::from_secs(30 * 24 * 3_600);

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// List webhook endpoints, declared ones first
    List {
        /// Only endpoints of this producer
        #[arg(long, value_name = "NAME")]
        producer: Option<String>,
        #[arg(long)]
        json: bool,
    },
    /// Create an endpoint and print its secret; it cannot be printed again
    #[command(
        after_help = "Examples:\n  dispatchq webhook create https://shop.example.com/dispatchq --producer shop\n  \
        dispatchq webhook create https://shop.example.com/ends --producer shop --events order.completed,order.cancelled"
    )]
    Create {
        /// URL that events are posted to: https, and a public address
        url: String,
        /// Producer whose orders are reported [default: the name of the caller]
        #[arg(long, value_name = "NAME")]
        producer: Option<String>,
        /// Types of the events to send [default: all]
        #[arg(long, value_name = "TYPES", value_delimiter = ',')]
        events: Vec<String>,
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Send one signed event endpoint.test
    Test {
        /// Id of the endpoint
        id: String,
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Replace the secret and print the new one
    Rotate {
        /// Id of the endpoint
        id: String,
        /// Time that the old secret also signs
        #[arg(long, value_name = "TIME", default_value = "24h", value_parser = parse_within(NONE..=LONGEST_OVERLAP))]
        overlap: Duration,
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Stop sending events to an endpoint
    Pause {
        /// Id of the endpoint
        id: String,
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Resume sending events to a paused endpoint
    #[command(after_help = "Events of the pause are sent by: dispatchq webhook replay ID --after CURSOR\n\
                            The column PAUSED AFTER of `dispatchq webhook list` has the cursor.")]
    Resume {
        /// Id of the endpoint
        id: String,
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// List the tries to deliver events, newest event first
    Deliveries {
        /// Id of the endpoint
        id: String,
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
        #[arg(long)]
        json: bool,
    },
    /// Send the events after a cursor of the stream again
    Replay {
        /// Id of the endpoint
        id: String,
        /// Cursor of the stream, such as 812-4711; 0-0 sends all stored events
        #[arg(long, value_name = "CURSOR")]
        after: String,
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Delete an endpoint
    Delete {
        /// Id of the endpoint
        id: String,
        /// Reason, kept in the record; required with --api
        #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
        reason: Option<String>,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
}

/// Options of each change.
#[derive(Debug, clap::Args)]
pub(super) struct ChangeArgs {
    /// Reason, kept in the record; required with --api
    #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
    reason: Option<String>,
    #[arg(long)]
    json: bool,
}

impl Command {
    pub(super) async fn run(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { producer, json } => list(api, producer, json).await?,
            Self::Create { url, producer, events, change } => {
                let reason = api.reason_of_change(change.reason)?;
                let wanted = json!({ "url": url, "producer": producer, "events": events, "reason": reason });
                print_secret(&api.post(&[ENDPOINTS], &wanted).await?, change.json)?;
            }
            Self::Rotate { id, overlap, change } => {
                let members = json!({ "overlap_sec": overlap.as_secs() });
                print_secret(&change_endpoint(api, &id, "rotate", members, change.reason).await?, change.json)?;
            }
            Self::Test { id, change } => {
                let sent = change_endpoint(api, &id, "test", json!({}), change.reason).await?;
                let line = format!(
                    "The event {} is sent. See: dispatchq webhook deliveries {id}",
                    show_field(&sent, "event_id")
                );
                print_change(&sent, &line, change.json)?;
            }
            Self::Pause { id, change } => {
                let paused = change_endpoint(api, &id, "pause", json!({}), change.reason).await?;
                let after = show_field(&paused, "paused_after");
                print_change(
                    &paused,
                    &format!("{id} is paused. A replay after {after} sends later events."),
                    change.json,
                )?;
            }
            Self::Resume { id, change } => {
                let resumed = change_endpoint(api, &id, "resume", json!({}), change.reason).await?;
                print_change(&resumed, &format!("{id} is active."), change.json)?;
            }
            Self::Deliveries { id, limit, json } => list_deliveries(api, &id, usize::try_from(limit)?, json).await?,
            Self::Replay { id, after, change } => {
                let started = change_endpoint(api, &id, "replay", json!({ "after": after }), change.reason).await?;
                print_change(&started, &format!("The events after {after} are sent again."), change.json)?;
            }
            Self::Delete { id, reason, yes } => delete(api, &id, reason, yes).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Sends a change of an endpoint with these members and the reason.
async fn change_endpoint(
    api: &ApiClient,
    id: &str,
    verb: &str,
    mut members: Value,
    reason: Option<String>,
) -> anyhow::Result<Value> {
    members["reason"] = json!(api.reason_of_change(reason)?);
    Ok(api.post(&[ENDPOINTS, id, verb], &members).await?)
}

async fn delete(api: &ApiClient, id: &str, reason: Option<String>, yes: bool) -> anyhow::Result<()> {
    let reason = api.reason_of_change(reason)?;
    ensure!(ask_at_once(yes, &format!("delete the endpoint {id}?"))?, "nothing was deleted");
    let query: Vec<_> = reason.map(|reason| ("reason", reason)).into_iter().collect();
    api.delete(&[ENDPOINTS, id], &query).await?;
    output::print_escaped(&format!("{id} is deleted."));
    Ok(())
}

async fn list(api: &ApiClient, producer: Option<String>, json: bool) -> anyhow::Result<()> {
    let query: Vec<_> = producer.map(|name| ("producer", name)).into_iter().collect();
    let ListedItems { items, .. } = api.list(&[ENDPOINTS], &query, PageNames::of("endpoints"), usize::MAX).await?;
    if json {
        return output::print_json(&items);
    }
    let rows = items.iter().map(|endpoint| {
        let events = show_field(endpoint, "events");
        [
            show_field(endpoint, "id"),
            show_field(endpoint, "producer"),
            show_field(endpoint, "url"),
            if events.is_empty() { "all".to_owned() } else { events },
            show_field(endpoint, "state"),
            show_field(endpoint, "paused_after"),
        ]
    });
    let headings = ["ID", "PRODUCER", "URL", "EVENTS", "STATE", "PAUSED AFTER"];
    output::print_rows(&headings, rows, "No endpoints. Create one: dispatchq webhook create URL --producer NAME");
    Ok(())
}

async fn list_deliveries(api: &ApiClient, id: &str, most: usize, json: bool) -> anyhow::Result<()> {
    let path = [ENDPOINTS, id, "deliveries"];
    let ListedItems { items, .. } = api.list(&path, &[], PageNames::of("deliveries"), most).await?;
    if json {
        return output::print_json(&items);
    }
    let rows = items.iter().map(|delivery| {
        let (request, answer) = (&delivery["request"], &delivery["answer"]);
        [
            show_time(delivery, "at"),
            show_field(request, "type"),
            show_field(request, "id"),
            show_field(delivery, "attempt_no"),
            if answer["accepted"] == true { "accepted".to_owned() } else { show_field(answer, "error") },
            show_field(delivery, "state"),
        ]
    });
    output::print_rows(&["AT", "TYPE", "EVENT", "TRY", "ANSWER", "STATE"], rows, "Nothing was sent.");
    Ok(())
}

fn print_change(answer: &Value, line: &str, json: bool) -> anyhow::Result<()> {
    if json {
        return output::print_json(answer);
    }
    output::print_escaped(line);
    Ok(())
}

/// Prints the secret of an endpoint, and its id as a note.
fn print_secret(endpoint: &Value, json: bool) -> anyhow::Result<()> {
    if json {
        return output::print_json(endpoint);
    }
    println!("{}", endpoint["secret"].as_str().context("the answer contains no secret")?);
    let id = show_field(endpoint, "id");
    output::print_note(&format!("This is the secret of endpoint {id}. Save it now: it cannot be shown again."));
    Ok(())
}
