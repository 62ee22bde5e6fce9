//! `dispatchq driver import|list|offers|accept|complete|set|sign-in|disable|enable|remove`. `import`, `offers`, `accept` and
//! `complete` need Redis.

mod steps;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, ensure};
use jobs::OrderId;
use serde_json::{Value, json};

use super::{
    consent::ask_at_once,
    order, output,
    remote::{
        ApiClient, ListedItems, PageNames,
        fields::{show_field, show_time},
        lines::import_lines,
    },
};
use model::ids::DriverId;
use model::input::parse_reason;

const HEADINGS: [&str; 7] = ["ID", "SERVICE TYPES", "SKILLS", "LAT, LNG", "AVAILABLE", "ORDER", "IDLE SINCE"];
const NO_DRIVERS: &str = "No drivers. Add some: dispatchq driver import FILE";

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Add drivers, or update known ones
    #[command(after_help = "One JSON object per line:\n  \
        {\"id\": \"D-1\", \"service_types\": [\"RIDE\"], \"latitude\": -6.2, \"longitude\": 106.8, \"available\": true}\n\n\
        Optional members: phone, name, and skills, such as [\"wheelchair\"].")]
    Import {
        /// File of JSON lines; "-" is standard input
        file: PathBuf,
        #[arg(long, value_parser = parse_reason)]
        reason: Option<String>,
    },
    /// List drivers and their orders
    List {
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
        #[arg(long)]
        json: bool,
    },
    /// List open offers to a driver
    #[command(after_help = "Example:\n  dispatchq driver offers D-1 --wait 30")]
    Offers {
        /// Id of the driver
        #[arg(value_name = "DRIVER")]
        id: DriverId,
        /// Wait this many seconds for the first offer
        #[arg(long, value_name = "SECONDS", default_value_t = 0,
              value_parser = clap::value_parser!(u64).range(0..=steps::LONGEST_WAIT_SEC))]
        wait: u64,
        /// Print JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Accept an offer on its driver's behalf
    #[command(after_help = "Examples:\n  dispatchq driver accept D-1\n  dispatchq driver accept D-1 ORD-1")]
    Accept {
        /// Id of the driver
        #[arg(value_name = "DRIVER")]
        id: DriverId,
        /// Order to accept [default: the first offer]
        order: Option<OrderId>,
    },
    /// Complete a driver's trip; records the pickup first if it is missing
    #[command(after_help = "Examples:\n  dispatchq driver complete D-1\n  dispatchq driver complete D-1 ORD-1")]
    Complete {
        /// Id of the driver
        #[arg(value_name = "DRIVER")]
        id: DriverId,
        /// Order to complete [default: the driver's current order]
        order: Option<OrderId>,
    },
    /// Change a driver's service types, skills or name
    #[command(after_help = "Examples:\n  dispatchq driver set D-1 --skills wheelchair,van\n  \
        dispatchq driver set D-1 --skills '' --name 'Ana Putri'")]
    Set(DriverSetArgs),
    /// Create a one-time link with which a driver signs in to the driver page
    #[command(after_help = "Example:\n  dispatchq driver sign-in D-1 --reason 'asked for it by phone'\n\n\
        The link is valid for 15 minutes and works once. http.driver_page must be true.")]
    SignIn {
        /// Id of the driver
        #[arg(value_name = "DRIVER")]
        id: DriverId,
        /// Reason, kept in the record; required with --api
        #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
        reason: Option<String>,
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Disable a driver: no new offers, and the driver's keys are refused
    Disable {
        id: DriverId,
        #[arg(long, value_parser = parse_reason)]
        reason: Option<String>,
    },
    /// Enable a driver; offers resume when the driver becomes available
    Enable {
        id: DriverId,
        #[arg(long, value_parser = parse_reason)]
        reason: Option<String>,
    },
    /// Remove a driver and revoke the driver's keys; the history keeps the id
    Remove {
        id: DriverId,
        #[arg(long, value_parser = parse_reason)]
        reason: String,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
}

impl Command {
    pub(super) fn needs_redis(&self) -> bool {
        matches!(self, Self::Import { .. } | Self::Offers { .. } | Self::Accept { .. } | Self::Complete { .. })
    }

    pub(super) async fn run(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { limit, json } => {
                let names = PageNames::of("drivers");
                let ListedItems { items, .. } = api.list(&["drivers"], &[], names, usize::try_from(limit)?).await?;
                if json {
                    output::print_json(&items)?;
                } else {
                    output::print_rows(&HEADINGS, items.iter().map(format_driver), NO_DRIVERS);
                }
            }
            Self::Offers { id, wait, json } => {
                let answer = api.get(&["drivers", &id, "offers"], &[("wait_sec", wait.to_string())]).await?;
                steps::print_offers(&answer["offers"], &id, json)?;
            }
            Self::Accept { id, order } => accept_order(api, &id, order.as_ref()).await?,
            Self::Complete { id, order } => complete_order(api, &id, order.as_ref()).await?,
            Self::Set(args) => args.run(api).await?,
            Self::SignIn { id, reason, json } => {
                let body = json!({ "reason": api.reason_of_change(reason)? });
                steps::print_link(&api.post(&["drivers", &id, "sign-in-links"], &body).await?, json)?;
            }
            Self::Disable { id, reason } => {
                let driver = set_disabled(api, &id, "disable", reason).await?;
                output::print_escaped(&format!("{id} is disabled."));
                if let Some(order) = driver["active_order"].as_str() {
                    output::print_note(&format!(
                        "{id} still has {order}; take it back: dispatchq order release {order}"
                    ));
                }
            }
            Self::Enable { id, reason } => {
                set_disabled(api, &id, "enable", reason).await?;
                output::print_escaped(&format!("{id} is enabled."));
            }
            Self::Remove { id, reason, yes } => {
                let question = format!("remove driver {id} and revoke the driver's keys?");
                ensure!(ask_at_once(yes, &question)?, "nothing was removed");
                let removed = api.post(&["drivers", &id, "remove"], &json!({ "reason": reason })).await?;
                let keys = show_field(&removed, "revoked_keys");
                output::print_escaped(&format!("{id} is removed, and {keys} keys are revoked."));
            }
            Self::Import { file, reason } => {
                let imported = import_lines(api, &["drivers", "import"], &file, reason).await?;
                output::print_escaped(&format!("{} drivers imported.", show_field(&imported, "imported")));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Values to change. Omitted ones stay.
#[derive(Debug, clap::Args)]
pub(super) struct DriverSetArgs {
    /// Id of the driver
    #[arg(value_name = "DRIVER")]
    id: DriverId,
    /// All service types of the driver
    #[arg(long, value_name = "TYPE,TYPE", value_delimiter = ',')]
    service_types: Option<Vec<String>>,
    /// All labels of the driver; empty removes them
    #[arg(long, value_name = "LABEL,LABEL", value_delimiter = ',')]
    skills: Option<Vec<String>>,
    /// Name for people; empty removes it
    #[arg(long)]
    name: Option<String>,
    #[arg(long, value_parser = parse_reason)]
    reason: Option<String>,
}

impl DriverSetArgs {
    async fn run(self, api: &ApiClient) -> anyhow::Result<()> {
        let Self { id, service_types, skills, name, reason } = self;
        ensure!(
            service_types.is_some() || skills.is_some() || name.is_some(),
            "nothing to change; name --service-types, --skills or --name"
        );
        let mut change = json!({ "reason": api.reason_of_change(reason)? });
        if let Some(service_types) = service_types {
            change["service_types"] = json!(service_types);
        }
        if let Some(skills) = skills {
            change["skills"] = skills.into_iter().filter(|skill| !skill.is_empty()).collect();
        }
        if let Some(name) = name {
            change["name"] = Some(name).filter(|name| !name.is_empty()).into();
        }
        api.patch(&["drivers", &id], &change).await?;
        output::print_escaped(&format!("{id} is changed."));
        Ok(())
    }
}

/// Fails if the driver is disabled. With a driver's own key this check is skipped: the key may not read drivers, and
/// the API refuses the key of a disabled driver.
async fn refuse_disabled(api: &ApiClient, driver: &DriverId) -> anyhow::Result<()> {
    match api.get(&["drivers", driver], &[]).await {
        Ok(found) => {
            let cure = format!("driver {driver} is disabled; see: dispatchq driver enable {driver}");
            ensure!(found["disabled_at"].is_null(), cure);
            Ok(())
        }
        Err(error) if error.is_refusal("FORBIDDEN") => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn accept_order(api: &ApiClient, driver: &DriverId, order: Option<&OrderId>) -> anyhow::Result<()> {
    refuse_disabled(api, driver).await?;
    let answer = api.get(&["drivers", driver, "offers"], &[]).await?;
    let mut offers = answer["offers"].as_array().into_iter().flatten();
    let wanted = offers.find(|offer| order.is_none_or(|order| offer["order_id"] == order.as_str()));
    let offer = wanted.with_context(|| steps::no_offer(driver, order))?;
    let id: OrderId = show_field(offer, "order_id").parse()?;
    let body = json!({ "driver_id": driver, "offer_id": offer["offer_id"] });
    order::change_order(api, &id, "accept", &body).await
}

async fn complete_order(api: &ApiClient, driver: &DriverId, order: Option<&OrderId>) -> anyhow::Result<()> {
    refuse_disabled(api, driver).await?;
    let active = api.get(&["drivers", driver], &[]).await?;
    let id = steps::named_order(driver, order, active["active_order"].as_str())?;
    let body = json!({ "driver_id": driver });
    if api.get(&["orders", id.as_str()], &[]).await?["status"] == "DRIVER_ASSIGNED" {
        order::change_order(api, &id, "pickup", &body).await?;
    }
    order::change_order(api, &id, "complete", &body).await
}

async fn set_disabled(api: &ApiClient, id: &str, step: &str, reason: Option<String>) -> anyhow::Result<Value> {
    Ok(api.post(&["drivers", id, step], &json!({ "reason": api.reason_of_change(reason)? })).await?)
}

fn format_driver(driver: &Value) -> [String; 7] {
    let degrees = |name: &str| driver[name].as_f64().map_or_else(|| "-".to_owned(), |at| format!("{at:.5}"));
    let available = match (driver["disabled_at"].is_null(), driver["available"] == true) {
        (false, _) => "disabled",
        (true, true) => "yes",
        (true, false) => "no",
    };
    [
        show_field(driver, "id"),
        show_field(driver, "service_types"),
        show_field(driver, "skills"),
        format!("{}, {}", degrees("lat"), degrees("lng")),
        available.to_owned(),
        show_field(driver, "active_order"),
        show_time(driver, "idle_since"),
    ]
}
