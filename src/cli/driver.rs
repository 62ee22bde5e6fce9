//! `dispatchq driver import|list`.

use std::{path::PathBuf, process::ExitCode};

use super::{
    import,
    output::{self, or_dash, time},
};
use crate::{
    app::App,
    dispatch::nearby,
    people::drivers::{self, NewDriver},
};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Add drivers, or bring known ones up to date
    #[command(after_help = "One JSON object per line:\n  \
        {\"id\": \"D-1\", \"service_types\": [\"RIDE\"], \"latitude\": -6.2, \"longitude\": 106.8, \"available\": true}")]
    Import {
        /// File of JSON lines; "-" is standard input
        file: PathBuf,
    },
    /// Drivers, and what occupies them
    List {
        #[arg(long, default_value_t = 100)]
        limit: u32,
        #[arg(long)]
        json: bool,
    },
}

impl Command {
    pub(super) async fn run(self, app: App) -> anyhow::Result<ExitCode> {
        match self {
            Self::Import { file } => {
                let new = import::lines(&file, NewDriver::problem)?;
                let count = drivers::import(&app.db, &new).await?;
                nearby::distrust(&app).await;
                println!("{count} drivers imported.");
            }
            Self::List { limit, json } => {
                let list = drivers::list(&app.db, limit).await?;
                if json {
                    output::json(&list)?;
                } else {
                    let rows = list.into_iter().map(|d| {
                        [
                            d.id,
                            d.service_types.join(","),
                            format!("{:.5}, {:.5}", d.lat, d.lng),
                            if d.available { "yes" } else { "no" }.to_owned(),
                            or_dash(d.active_order),
                            time(d.idle_since),
                        ]
                    });
                    let headings = ["ID", "SERVICE TYPES", "LAT, LNG", "AVAILABLE", "ORDER", "IDLE SINCE"];
                    output::table(&headings, rows, "No drivers. Add some: dispatchq driver import FILE");
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
