//! `dispatchq driver import|list|offers|accept|complete|disable|enable|remove`. Redis is needed for `import` and for the three
//! steps of a driver.

mod remote;
mod steps;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{anyhow, bail, ensure};
use jobs::OrderId;

use super::{
    consent::ask_at_once,
    import,
    order::cli_operator,
    output::{self, format_time, or_dash},
};
use app::App;
use foundation::{
    db::{self, Pool},
    staff_actions::ActionAuthor,
};
use model::ids::DriverId;
use model::input::parse_reason;
use orders::fleet::{
    driver_admin::{self, DriverError, DriverRemoval},
    driver_index,
    drivers::{self, NewDriver},
};
use settings::Config;

const HEADINGS: [&str; 6] = ["ID", "SERVICE TYPES", "LAT, LNG", "AVAILABLE", "ORDER", "IDLE SINCE"];
const NO_DRIVERS: &str = "No drivers. Add some: dispatchq driver import FILE";

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Add drivers, or bring known ones up to date
    #[command(after_help = "One JSON object per line:\n  \
        {\"id\": \"D-1\", \"service_types\": [\"RIDE\"], \"latitude\": -6.2, \"longitude\": 106.8, \"available\": true}")]
    Import {
        /// File of JSON lines; "-" is standard input
        file: PathBuf,
        #[arg(long, value_parser = parse_reason)]
        reason: Option<String>,
    },
    /// Drivers, and what occupies them
    List {
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
        #[arg(long)]
        json: bool,
    },
    /// List what a driver is being asked
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
    /// Accept an offer for its driver
    #[command(after_help = "Examples:\n  dispatchq driver accept D-1\n  dispatchq driver accept D-1 ORD-1")]
    Accept {
        /// Id of the driver
        #[arg(value_name = "DRIVER")]
        id: DriverId,
        /// Order to accept [default: the one offered first]
        order: Option<OrderId>,
    },
    /// Complete a driver's trip; the pickup is recorded first if it is still to be done
    #[command(after_help = "Examples:\n  dispatchq driver complete D-1\n  dispatchq driver complete D-1 ORD-1")]
    Complete {
        /// Id of the driver
        #[arg(value_name = "DRIVER")]
        id: DriverId,
        /// Order to complete [default: the one that the driver has]
        order: Option<OrderId>,
    },
    /// Give a driver no more work, and refuse the driver's keys
    Disable {
        id: DriverId,
        #[arg(long, value_parser = parse_reason)]
        reason: Option<String>,
    },
    /// Undo `disable`; the driver says when work is wanted again
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
        /// Do not ask before the driver is removed
        #[arg(long)]
        yes: bool,
    },
}

impl Command {
    pub(super) async fn run(self, config: Config) -> anyhow::Result<ExitCode> {
        match self {
            Self::Import { file, reason } => {
                return import_drivers(&App::connect(config).await?, &file, reason.as_deref()).await;
            }
            Self::Offers { id, wait, json } => {
                let app = App::connect(config).await?;
                steps::print_live_offers(&app, &id, Duration::from_secs(wait), json).await?;
                return Ok(ExitCode::SUCCESS);
            }
            Self::Accept { id, order } => {
                steps::accept_order(&App::connect(config).await?, &id, order.as_ref()).await?;
                return Ok(ExitCode::SUCCESS);
            }
            Self::Complete { id, order } => {
                steps::complete_order(&App::connect(config).await?, &id, order.as_ref()).await?;
                return Ok(ExitCode::SUCCESS);
            }
            Self::List { .. } | Self::Disable { .. } | Self::Enable { .. } | Self::Remove { .. } => {}
        }
        let db = db::connect_pool(&config.database).await?;
        db::check_schema(&db).await?;
        match self {
            Self::Import { .. } | Self::Offers { .. } | Self::Accept { .. } | Self::Complete { .. } => {
                unreachable!("answered above")
            }
            Self::Disable { id, reason } => {
                disable_driver(&db, &id, true, reason.as_deref()).await?;
                output::print_escaped(&format!("{id} is disabled."));
                if let Some(order) = drivers::find_driver(&db, &id).await?.and_then(|driver| driver.active_order) {
                    output::print_note(&format!(
                        "{id} still has {order}; take it back: dispatchq order release {order}"
                    ));
                }
            }
            Self::Enable { id, reason } => {
                disable_driver(&db, &id, false, reason.as_deref()).await?;
                output::print_escaped(&format!("{id} is enabled."));
            }
            Self::Remove { id, reason, yes } => {
                let question = format!("remove driver {id} and revoke the driver's keys?");
                ensure!(ask_at_once(yes, &question)?, "nothing was removed");
                remove_driver(&db, &id, &reason).await?;
            }
            Self::List { limit, json } => {
                let list = drivers::list_drivers(&db, limit).await?;
                if json {
                    output::print_json(&list)?;
                } else {
                    let rows = list.into_iter().map(|d| {
                        [
                            d.id.into_string(),
                            d.service_types.join(","),
                            format!("{:.5}, {:.5}", d.lat, d.lng),
                            match (d.disabled_at, d.available) {
                                (Some(_), _) => "disabled",
                                (None, true) => "yes",
                                (None, false) => "no",
                            }
                            .to_owned(),
                            or_dash(d.active_order),
                            format_time(d.idle_since),
                        ]
                    });
                    output::print_rows(&HEADINGS, rows, NO_DRIVERS);
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn no_such_driver(id: &DriverId) -> String {
    format!("no driver '{id}'; see: dispatchq driver list")
}

async fn disable_driver(db: &Pool, id: &DriverId, disabled: bool, reason: Option<&str>) -> anyhow::Result<()> {
    let by = ActionAuthor { actor: &cli_operator(), reason };
    driver_admin::set_disabled(db, id, disabled, by).await.map_err(|error| match error {
        DriverError::NotFound => anyhow!(no_such_driver(id)),
        other => other.into(),
    })
}

async fn remove_driver(db: &Pool, id: &DriverId, reason: &str) -> anyhow::Result<()> {
    let by = ActionAuthor { actor: &cli_operator(), reason: Some(reason) };
    match driver_admin::remove_driver(db, id, by).await? {
        DriverRemoval::Removed { keys } => {
            output::print_escaped(&format!("{id} is removed, and {keys} keys are revoked."));
            Ok(())
        }
        DriverRemoval::Busy { order } => bail!("{id} has {order}; take it back first: dispatchq order release {order}"),
        DriverRemoval::NoSuchDriver => bail!(no_such_driver(id)),
    }
}

async fn import_drivers(app: &App, file: &Path, reason: Option<&str>) -> anyhow::Result<ExitCode> {
    let find_problem = |driver: &NewDriver| driver.find_problem(&app.config).map(|error| error.message);
    let new = import::read_json_lines(file, |driver: &NewDriver| driver.id.to_string(), find_problem)?;
    let by = ActionAuthor { actor: &cli_operator(), reason };
    driver_admin::import_drivers(&app.core.db, &new, by).await?;
    driver_index::invalidate_index(&app.orders).await;
    output::print_text(&format!("{} drivers imported.", new.len()));
    Ok(ExitCode::SUCCESS)
}
