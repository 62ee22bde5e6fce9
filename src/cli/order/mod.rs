//! `dispatchq order create|show|list|timeline|explain|cancel|assign|release|redispatch|refund`.

mod explain;

use std::process::ExitCode;

use anyhow::{Context, ensure};
use jobs::OrderId;

use crate::cli::output::{self, format_time, or_dash};
use dispatch::{
    actor::{Actor, ActorRole},
    app::App,
    fleet::drivers,
    ids::{AreaId, DriverId, ServiceType},
    orders::{
        Decision, Offer, OrderRefusal, OrderStatus, PaymentStatus, Snapshot, actions, commit,
        create::{self, NewOrder, OrderLocation},
        query::{self, OrderFilter},
        store,
        update::update_order,
        view::OrderView,
    },
    plain_text,
};

#[derive(Debug, clap::Subcommand)]
pub(in crate::cli) enum Command {
    /// Create an order
    #[command(after_help = "Example:\n  dispatchq order create --service-type RIDE --lat -6.2088 --lng 106.8456")]
    Create(OrderCreateArgs),
    /// One order as it stands
    Show {
        id: OrderId,
        #[arg(long)]
        json: bool,
    },
    /// Orders, newest first
    List {
        /// Only this status
        #[arg(long)]
        status: Option<OrderStatus>,
        /// Only orders a person must decide on
        #[arg(long)]
        held: bool,
        /// Only orders not closed yet
        #[arg(long)]
        open: bool,
        #[arg(long, default_value_t = 50)]
        limit: u32,
        #[arg(long)]
        json: bool,
    },
    /// Everything that happened to an order
    Timeline {
        id: OrderId,
        #[arg(long)]
        json: bool,
    },
    /// Why an order is as it is, what happens next, who holds it, what to do
    #[command(after_help = "Example:\n  dispatchq order explain ORD-1")]
    Explain {
        id: OrderId,
        #[arg(long)]
        json: bool,
    },
    /// Cancel an order for its customer, or end one under review
    Cancel {
        id: OrderId,
        #[arg(long, value_parser = plain_text::parse)]
        reason: Option<String>,
    },
    /// Give an order to a driver by hand
    Assign {
        id: OrderId,
        #[arg(long, value_name = "ID")]
        driver: DriverId,
    },
    /// Take an order from its driver and have the search go on
    Release {
        id: OrderId,
        #[arg(long, value_parser = plain_text::parse)]
        reason: Option<String>,
    },
    /// Restart the search for a driver
    Redispatch { id: OrderId },
    /// Say how far the refund of a paid and cancelled order is; the money itself is paid back elsewhere
    #[command(subcommand)]
    Refund(RefundCommand),
}

#[derive(Debug, clap::Subcommand)]
pub(in crate::cli) enum RefundCommand {
    /// Support has begun to pay the money back
    Start {
        id: OrderId,
        #[arg(long, value_parser = plain_text::parse)]
        note: Option<String>,
    },
    /// The money is back
    Done {
        id: OrderId,
        #[arg(long, value_parser = plain_text::parse)]
        note: Option<String>,
    },
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct OrderCreateArgs {
    /// The order's id [default: a new one]
    #[arg(long)]
    id: Option<OrderId>,
    #[arg(long)]
    service_type: ServiceType,
    #[arg(long, allow_negative_numbers = true)]
    lat: f64,
    #[arg(long, allow_negative_numbers = true)]
    lng: f64,
    #[arg(long, default_value = "UNPAID")]
    payment_status: String,
    /// In the smallest unit of the currency
    #[arg(long)]
    amount_minor: Option<i64>,
    #[arg(long)]
    currency: Option<String>,
    #[arg(long)]
    area: Option<AreaId>,
    /// Where the customer orders, such as MYBB
    #[arg(long)]
    channel: Option<String>,
    /// EXPLORER, TRAVELER, VOYAGER or ELITE
    #[arg(long)]
    loyalty_level: Option<String>,
    #[arg(long)]
    json: bool,
}

impl Command {
    pub(in crate::cli) async fn run(self, app: App) -> anyhow::Result<ExitCode> {
        match self {
            Self::Create(args) => args.run(&app).await?,
            Self::Show { id, json } => {
                let s = store::load_order(&app.db, &id).await?.with_context(|| no_such_order(&id))?;
                print_order(&s, &query::list_offers(&app.db, &id).await?, json)?;
            }
            Self::List { status, held, open, limit, json } => {
                print_orders(&app, &OrderFilter { status, held, open, limit }, json).await?;
            }
            Self::Timeline { id, json } => print_timeline(&app, &id, json).await?,
            Self::Explain { id, json } => return explain::run(&app, &id, json).await,
            Self::Refund(RefundCommand::Start { id, note }) => {
                change_order(&app, &id, |s| actions::start_refund(s, &cli_operator(), note.clone())).await?;
            }
            Self::Refund(RefundCommand::Done { id, note }) => {
                change_order(&app, &id, |s| actions::finish_refund(s, &cli_operator(), note.clone())).await?;
            }
            Self::Cancel { id, reason } => {
                change_order(&app, &id, |s| actions::cancel_order(s, &cli_operator(), reason.clone())).await?;
            }
            Self::Assign { id, driver } => {
                ensure!(drivers::driver_exists(&app.db, &driver).await?, OrderRefusal::NoSuchDriver);
                change_order(&app, &id, |s| actions::assign_driver(s, &cli_operator(), &driver)).await?;
            }
            Self::Release { id, reason } => {
                change_order(&app, &id, |s| actions::release_driver(s, &cli_operator(), reason.clone())).await?;
            }
            Self::Redispatch { id } => {
                change_order(&app, &id, |s| actions::redispatch_order(s, &cli_operator())).await?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl OrderCreateArgs {
    async fn run(self, app: &App) -> anyhow::Result<()> {
        let new = NewOrder {
            order_id: self.id,
            service_type: self.service_type,
            pickup: OrderLocation { latitude: self.lat, longitude: self.lng },
            payment_status: PaymentStatus::try_from(self.payment_status)?,
            amount_minor: self.amount_minor,
            currency: self.currency,
            area_id: self.area,
            customer_id: None,
            channel: self.channel,
            loyalty_level: self.loyalty_level,
        };
        let id = new.order_id.clone().unwrap_or_else(NewOrder::random_id);
        print_order(&create::create_order(app, id, &new, &cli_operator()).await?, &[], self.json)
    }
}

async fn change_order(app: &App, id: &OrderId, decide: impl FnMut(&Snapshot) -> Decision) -> anyhow::Result<()> {
    let changed = update_order(app, id, decide).await.with_context(|| format!("{id} was not changed"))?;
    match &changed {
        commit::ChangeOutcome::Yes(s) => println!("{id} is now {}.", s.order.status),
        commit::ChangeOutcome::No(s) => println!("{id} is {} already.", s.order.status),
    }
    Ok(())
}

async fn print_orders(app: &App, filter: &OrderFilter, json: bool) -> anyhow::Result<()> {
    let orders = query::list_orders(&app.db, filter).await?;
    if json {
        return output::print_json(&orders);
    }
    let rows = orders.into_iter().map(|o| {
        [
            o.id.to_string(),
            o.status.to_string(),
            o.service_type.into_string(),
            o.payment_status.to_string(),
            o.attempt_no.to_string(),
            or_dash(o.driver_id),
            o.held_reason.map_or_else(String::new, |why| format!("held: {why}")),
            format_time(o.created_at),
        ]
    });
    let headings = ["ORDER", "STATUS", "SERVICE", "PAYMENT", "ATTEMPTS", "DRIVER", "REVIEW", "CREATED"];
    output::print_rows(&headings, rows, "No such orders.");
    Ok(())
}

async fn print_timeline(app: &App, id: &OrderId, json: bool) -> anyhow::Result<()> {
    let events = query::load_timeline(&app.db, id).await?;
    ensure!(!events.is_empty(), no_such_order(id));
    if json {
        return output::print_json(&events);
    }
    let rows = events.into_iter().map(|e| {
        let step = match e.from_status {
            Some(from) if from != e.to_status => format!("{from} -> {}", e.to_status),
            _ => e.to_status.to_string(),
        };
        [format_time(e.at), step, e.reason, or_dash(e.attempt_no), e.actor, e.detail.unwrap_or_default()]
    });
    output::print_rows(&["AT", "STATUS", "REASON", "ATTEMPT", "ACTOR", "DETAIL"], rows, "");
    Ok(())
}

fn print_order(s: &Snapshot, offers: &[Offer], json: bool) -> anyhow::Result<()> {
    let view = OrderView::from(s);
    if json {
        return output::print_json(&view);
    }
    let mut rows = vec![
        ["order".to_owned(), view.order_id.to_string()],
        ["status".to_owned(), view.status.to_string()],
        ["service type".to_owned(), view.service_type.into_string()],
        ["partner".to_owned(), or_dash(view.partner)],
        ["job id".to_owned(), or_dash(view.job_id)],
        ["payment".to_owned(), view.payment_status.to_string()],
        ["driver".to_owned(), or_dash(view.driver_id)],
        ["attempts".to_owned(), view.attempt_no.to_string()],
        ["created".to_owned(), format_time(view.created_at)],
        ["lifetime ends".to_owned(), format_time(view.lifetime_deadline)],
    ];
    if let Some(next) = view.next {
        rows.push(["next".to_owned(), format!("{} at {} (in {} s)", next.action, format_time(next.at), next.in_sec)]);
    }
    if let Some(why) = &s.order.held_reason {
        rows.push(["under review".to_owned(), why.clone()]);
    }
    for offer in offers {
        let line = format!(
            "attempt {}: {} until {}: {}",
            offer.attempt_no,
            offer.driver_id,
            format_time(offer.expires_at),
            offer.state.as_str()
        );
        rows.push(["offer".to_owned(), line]);
    }
    for row in rows {
        output::print_escaped(&format!("{:<14} {}", row[0], row[1]));
    }
    Ok(())
}

fn no_such_order(id: &OrderId) -> String {
    format!("no order {id}; see: dispatchq order list")
}

/// Who works at this command line, as the history names them: what the shell says, which proves nothing.
pub(in crate::cli) fn cli_operator() -> Actor {
    let user = std::env::var("USER").ok().filter(|user| !user.is_empty());
    Actor::new(ActorRole::Cli, plain_text::escape_controls(user.as_deref().unwrap_or("unknown")), None)
}
