//! `dispatchq user import|list`.

use std::{path::PathBuf, process::ExitCode};

use super::{import, output};
use crate::{
    app::App,
    people::users::{self, User},
};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Add users, or bring known ones up to date
    #[command(after_help = "One JSON object per line:\n  \
        {\"id\": \"anna\", \"name\": \"Anna\", \"role\": \"dispatcher\", \"channel\": \"log\"}")]
    Import {
        /// File of JSON lines; "-" is standard input
        file: PathBuf,
    },
    /// Users and the channels that reach them
    List {
        #[arg(long)]
        json: bool,
    },
}

impl Command {
    pub(super) async fn run(self, app: App) -> anyhow::Result<ExitCode> {
        match self {
            Self::Import { file } => {
                let channels: Vec<&str> = app.config.channels.keys().map(String::as_str).collect();
                let new = import::lines(&file, |user: &User| user.problem(&channels))?;
                println!("{} users imported.", users::import(&app.db, &new).await?);
            }
            Self::List { json } => {
                let list = users::list(&app.db).await?;
                if json {
                    output::json(&list)?;
                } else {
                    let rows =
                        list.into_iter().map(|u| [u.id, u.name, format!("{:?}", u.role).to_lowercase(), u.channel]);
                    output::table(
                        &["ID", "NAME", "ROLE", "CHANNEL"],
                        rows,
                        "No users. Add some: dispatchq user import FILE",
                    );
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
