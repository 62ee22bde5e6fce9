//! `dispatchq order create|update|show|list|timeline|explain|cancel|assign|release|redispatch|hold|resume|take|leave|refund`.

mod contents;
mod create;
mod explain;
mod update;

use std::process::ExitCode;

use anyhow::ensure;
use jobs::OrderId;
use serde_json::{Value, json};

use crate::cli::{
    consent::ask_at_once,
    output,
    remote::{
        ApiClient, PageNames,
        fields::{list_items, show_field, show_time},
    },
};
use model::{
    actor::{Actor, ActorRole},
    ids::DriverId,
    order::OrderStatus,
    plain_text,
};
use model::{input::parse_reason, messages::money::format_amount};

const LIST_HEADINGS: [&str; 8] = ["ORDER", "STATUS", "SERVICE", "PAYMENT", "ATTEMPTS", "DRIVER", "REVIEW", "CREATED"];

#[derive(Debug, clap::Subcommand)]
pub(in crate::cli) enum Command {
    /// Create an order
    #[command(after_help = "Example:\n  dispatchq order create --service-type RIDE --lat -6.2088 --lng 106.8456")]
    Create(Box<create::OrderCreateArgs>),
    /// Change the contents of an order before the pickup
    #[command(after_help = "Example:\n  dispatchq order update ORD-1 --notes 'Ring twice.' --remove dropoff")]
    Update(Box<update::OrderUpdateArgs>),
    /// Show an order
    Show {
        id: OrderId,
        #[arg(long)]
        json: bool,
    },
    /// List orders of the last 31 days, or open orders of any age, newest first
    List {
        /// Only orders with this status
        #[arg(long)]
        status: Option<OrderStatus>,
        /// Only orders that wait for a person's decision
        #[arg(long)]
        held: bool,
        /// Only open orders
        #[arg(long)]
        open: bool,
        /// Only orders with this value in their metadata; may be repeated
        #[arg(long, value_name = "KEY=VALUE", value_parser = contents::parse_metadata)]
        metadata: Vec<(String, String)>,
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
        #[arg(long)]
        json: bool,
    },
    /// List all events of an order
    Timeline {
        id: OrderId,
        #[arg(long)]
        json: bool,
    },
    /// Explain an order: why it has its status, what happens next, which worker has it, what to do
    #[command(after_help = "Example:\n  dispatchq order explain ORD-1")]
    Explain {
        id: OrderId,
        #[arg(long)]
        json: bool,
    },
    /// Cancel an order for its customer, or end one under review; asks for confirmation if it is paid
    Cancel {
        id: OrderId,
        #[arg(long, value_parser = parse_reason)]
        reason: Option<String>,
        /// Do not ask for confirmation before a paid order is cancelled
        #[arg(long)]
        yes: bool,
    },
    /// Assign an order to a driver by hand
    Assign {
        id: OrderId,
        #[arg(long, value_name = "ID")]
        driver: DriverId,
        #[arg(long, value_parser = parse_reason)]
        reason: Option<String>,
    },
    /// Take an order from its driver and continue the search
    Release {
        id: OrderId,
        #[arg(long, value_parser = parse_reason)]
        reason: Option<String>,
    },
    /// Restart the search for a driver
    Redispatch {
        id: OrderId,
        #[arg(long, value_parser = parse_reason)]
        reason: Option<String>,
    },
    /// Hold an order: its timers stop until a dispatcher resumes it or decides otherwise
    Hold {
        id: OrderId,
        #[arg(long, value_parser = parse_reason)]
        reason: String,
    },
    /// End the review of an order, which then continues
    Resume {
        id: OrderId,
        #[arg(long, value_parser = parse_reason)]
        reason: String,
    },
    /// Claim an order that waits for a person; the claim lasts ten minutes, and other dispatchers see it
    Take {
        id: OrderId,
        #[arg(long, value_parser = parse_reason)]
        reason: Option<String>,
    },
    /// Give up your claim on an order
    Leave {
        id: OrderId,
        #[arg(long, value_parser = parse_reason)]
        reason: Option<String>,
    },
    /// Record the progress of a refund; the money itself is paid back elsewhere
    #[command(subcommand)]
    Refund(RefundCommand),
}

#[derive(Debug, clap::Subcommand)]
pub(in crate::cli) enum RefundCommand {
    /// Record that support has started to pay the money back
    Start {
        id: OrderId,
        #[arg(long, value_parser = plain_text::parse)]
        note: Option<String>,
    },
    /// Record that the money is paid back
    Done {
        id: OrderId,
        #[arg(long, value_parser = plain_text::parse)]
        note: Option<String>,
    },
}

/// Filter of `order list`.
struct OrderListing {
    status: Option<OrderStatus>,
    held: bool,
    open: bool,
    metadata: Vec<(String, String)>,
    limit: u32,
}

impl Command {
    pub(in crate::cli) async fn run(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        match self {
            Self::Create(args) => args.run(api).await?,
            Self::Update(args) => args.run(api).await?,
            Self::Show { id, json } => show_order(api, &id, json).await?,
            Self::List { status, held, open, metadata, limit, json } => {
                print_listing(api, &OrderListing { status, held, open, metadata, limit }, json).await?;
            }
            Self::Timeline { id, json } => {
                let timeline = api.get(&["orders", id.as_str(), "timeline"], &[]).await?;
                print_events(&timeline["events"], json)?;
            }
            Self::Explain { id, json } => {
                explain::print_explanation(&api.get(&["orders", id.as_str(), "explain"], &[]).await?, json)?;
            }
            Self::Refund(RefundCommand::Start { id, note }) => {
                change_order(api, &id, "refund", &json!({ "action": "start", "note": note })).await?;
            }
            Self::Refund(RefundCommand::Done { id, note }) => {
                change_order(api, &id, "refund", &json!({ "action": "done", "note": note })).await?;
            }
            Self::Cancel { id, reason, yes } => {
                if !yes {
                    match api.get(&["orders", id.as_str()], &[]).await {
                        Ok(order) => ask_about_payment(&order, yes)?,
                        // The cancel request fails with an error that says what to do.
                        Err(error) if error.is_refusal("ORDER_NOT_FOUND") || error.is_refusal("FORBIDDEN") => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                change_order(api, &id, "cancel", &json!({ "reason": reason })).await?;
            }
            Self::Assign { id, driver, reason } => {
                change_order(
                    api,
                    &id,
                    "assign",
                    &json!({ "driver_id": driver, "reason": api.reason_of_change(reason)? }),
                )
                .await?;
            }
            Self::Release { id, reason } => {
                change_order(api, &id, "release", &json!({ "reason": api.reason_of_change(reason)? })).await?;
            }
            Self::Redispatch { id, reason } => {
                change_order(api, &id, "redispatch", &json!({ "reason": api.reason_of_change(reason)? })).await?;
            }
            Self::Hold { id, reason } => change_order(api, &id, "hold", &json!({ "reason": reason })).await?,
            Self::Resume { id, reason } => change_order(api, &id, "resume", &json!({ "reason": reason })).await?,
            Self::Take { id, reason } => {
                let take = api.post(&["orders", id.as_str(), "take"], &json!({ "reason": reason })).await?;
                print_take(&show_field(&take, "taken_by"), &id, &show_time(&take, "ends_at"));
            }
            Self::Leave { id, reason } => {
                api.post(&["orders", id.as_str(), "leave"], &json!({ "reason": reason })).await?;
                print_left(&id);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Posts a change of an order, and prints the new status.
pub(in crate::cli) async fn change_order(
    api: &ApiClient,
    id: &OrderId,
    step: &str,
    body: &Value,
) -> anyhow::Result<()> {
    let order = api.post(&["orders", id.as_str(), step], body).await?;
    output::print_escaped(&format!("{id} is {}.", show_field(&order, "status")));
    Ok(())
}

/// Asks for confirmation before a paid order is cancelled. Fails if the person does not confirm.
fn ask_about_payment(order: &Value, yes: bool) -> anyhow::Result<()> {
    if !owes_on_cancel(order) {
        return Ok(());
    }
    let id = show_field(order, "order_id");
    let owed = match (order["amount_minor"].as_i64(), order["currency"].as_str()) {
        (Some(amount), Some(currency)) => format!("this makes a refund of {} due", format_amount(amount, currency)),
        _ => "this makes a refund due".to_owned(),
    };
    let is_sure = ask_at_once(yes, &format!("cancel {id}, which is paid ({owed})?"))?;
    ensure!(is_sure, "{id} was not cancelled");
    Ok(())
}

/// Returns whether cancelling this order makes a refund due: the order is open and was paid at some time. An amount of
/// 0 needs no refund.
fn owes_on_cancel(order: &Value) -> bool {
    order["closed_at"].is_null() && !order["paid_at"].is_null() && order["amount_minor"] != 0
}

fn print_take(person: &str, id: &OrderId, until: &str) {
    output::print_escaped(&format!("{person} handles {id} until {until}."));
}

fn print_left(id: &OrderId) {
    output::print_escaped(&format!("You no longer handle {id}."));
}

/// Prints orders of the last 31 days, or open orders of any age, newest first.
async fn print_listing(api: &ApiClient, wanted: &OrderListing, json: bool) -> anyhow::Result<()> {
    let metadata: Vec<_> = wanted.metadata.iter().map(|(key, value)| (format!("metadata[{key}]"), value)).collect();
    let mut query = vec![("closed", (!wanted.open).to_string())];
    query.extend(wanted.status.map(|status| ("status", status.to_string())));
    query.extend(wanted.held.then(|| ("held", "true".to_owned())));
    query.extend(metadata.iter().map(|(name, value)| (name.as_str(), (*value).clone())));
    let most = usize::try_from(wanted.limit)?;
    let listed = api.list(&["orders"], &query, PageNames::of("orders"), most).await?;
    print_views(&Value::Array(listed.items), json)
}

/// Prints orders in the format of the API.
fn print_views(orders: &Value, json: bool) -> anyhow::Result<()> {
    if json {
        return output::print_json(orders);
    }
    let rows = orders.as_array().into_iter().flatten().map(|order| {
        [
            show_field(order, "order_id"),
            show_field(order, "status"),
            show_field(order, "service_type"),
            show_field(order, "payment_status"),
            show_field(order, "attempt_no"),
            show_field(order, "driver_id"),
            if order["held_for_review"] == true { "held".to_owned() } else { String::new() },
            show_time(order, "created_at"),
        ]
    });
    output::print_rows(&LIST_HEADINGS, rows, "No such orders.");
    Ok(())
}

/// Prints the events of a timeline in the format of the API.
fn print_events(events: &Value, json: bool) -> anyhow::Result<()> {
    if json {
        return output::print_json(events);
    }
    let rows = events.as_array().into_iter().flatten().map(|e| {
        let detail = e["detail"].as_str().unwrap_or_default().to_owned();
        [
            show_time(e, "at"),
            step_of(e),
            show_field(e, "reason"),
            show_field(e, "attempt_no"),
            show_field(e, "actor"),
            detail,
        ]
    });
    output::print_rows(&["AT", "STATUS", "REASON", "ATTEMPT", "ACTOR", "DETAIL"], rows, "");
    Ok(())
}

/// Returns the new status of an event, with the previous status if it differs.
fn step_of(event: &Value) -> String {
    let (from, to) = (show_field(event, "from_status"), show_field(event, "to_status"));
    if event["from_status"].is_null() || from == to { to } else { format!("{from} -> {to}") }
}

/// Prints an order. Staff also see why it is under review, and its offers.
async fn show_order(api: &ApiClient, id: &OrderId, json: bool) -> anyhow::Result<()> {
    let view = api.get(&["orders", id.as_str()], &[]).await?;
    if json {
        return output::print_json(&view);
    }
    let explained = match api.get(&["orders", id.as_str(), "explain"], &[]).await {
        // A producer or driver may not read the explanation.
        Err(error) if error.is_refusal("FORBIDDEN") => Value::Null,
        explained => explained?,
    };
    let is_held = view["held_for_review"] == true;
    let held = is_held.then(|| ("under review", explained["why"].as_str().unwrap_or("yes").to_owned()));
    let offers = list_items(&explained, "offers").iter().map(|offer| {
        let (attempt, driver) = (show_field(offer, "attempt_no"), show_field(offer, "driver_id"));
        let (until, state) = (show_time(offer, "expires_at"), show_field(offer, "state"));
        ("offer", format!("attempt {attempt}: {driver} until {until}: {state}"))
    });
    print_order_view(&view, held.into_iter().chain(offers));
    Ok(())
}

/// Prints an order in the format of the API, followed by additional rows.
fn print_order_view(view: &Value, more: impl IntoIterator<Item = (&'static str, String)>) {
    let mut rows = vec![
        ("order", show_field(view, "order_id")),
        ("status", show_field(view, "status")),
        ("service type", show_field(view, "service_type")),
        ("partner", show_field(view, "partner")),
        ("booking id", show_field(view, "booking_id")),
        ("job id", show_field(view, "job_id")),
        ("pickup", output::format_place(&view["pickup"])),
        ("payment", show_field(view, "payment_status")),
        ("first paid", show_time(view, "paid_at")),
        ("language", show_field(view, "language")),
        ("driver", show_field(view, "driver_id")),
        ("attempts", show_field(view, "attempt_no")),
        ("created", show_time(view, "created_at")),
        ("lifetime ends", show_time(view, "lifetime_deadline")),
    ];
    if view["pickup_at"].is_string() {
        rows.push(("pickup at", show_time(view, "pickup_at")));
    }
    rows.extend(list_contents(view));
    let next = &view["next"];
    if next.is_object() {
        let (action, at, in_sec) = (show_field(next, "action"), show_time(next, "at"), show_field(next, "in_sec"));
        rows.push(("next", format!("{action} at {at} (in {in_sec} s)")));
    }
    rows.extend(more);
    for (name, value) in rows {
        let value = plain_text::escape_controls(&value);
        let value = if name == "status" { output::paint_state(&value) } else { value };
        output::print_text(&format!("{name:<14} {value}"));
    }
}

/// Returns the contents of an order as rows. Missing contents are omitted.
fn list_contents(view: &Value) -> Vec<(&'static str, String)> {
    let metadata = view["metadata"].as_object().into_iter().flatten();
    let metadata = metadata.map(|(key, value)| ("metadata", format!("{key} = {}", value.as_str().unwrap_or_default())));
    let dropoff = &view["dropoff"];
    let texts = [
        dropoff.is_object().then(|| ("dropoff", output::format_place(dropoff))),
        view["notes"].as_str().map(|notes| ("notes", notes.to_owned())),
        view["requires"].is_array().then(|| ("requires", show_field(view, "requires"))),
    ];
    texts.into_iter().flatten().chain(metadata).collect()
}

/// Returns the actor for the history: the user name from the environment, which proves nothing.
pub(in crate::cli) fn cli_operator() -> Actor {
    let user = std::env::var("USER").ok().filter(|user| !user.is_empty());
    Actor::new(ActorRole::Cli, plain_text::escape_controls(user.as_deref().unwrap_or("unknown")), None)
}
