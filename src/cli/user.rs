//! `dispatchq user import|list|disable|enable|remove`. Postgres alone is needed.

use std::{path::PathBuf, process::ExitCode};

use anyhow::ensure;

use super::{
    import,
    output::{self, format_time, or_dash},
};
use dispatch::{
    accounts::users::{self, ListedUser, UserAccount},
    config::Config,
    db,
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
    /// Tell this person nothing more
    Disable { id: String },
    /// Undo `disable`
    Enable { id: String },
    /// Remove a person
    #[command(after_help = "Keys that this person holds are revoked by name: dispatchq apikey revoke --name NAME")]
    Remove { id: String },
}

impl Command {
    pub(super) async fn run(self, config: Config) -> anyhow::Result<ExitCode> {
        let db = db::connect_pool(&config.database).await?;
        db::check_schema(&db).await?;
        let no_such = |id: &str| format!("no user '{id}'; see: dispatchq user list");
        match self {
            Self::Disable { id } => {
                ensure!(users::set_disabled(&db, &id, true).await?, no_such(&id));
                println!("{id} is disabled.");
            }
            Self::Enable { id } => {
                ensure!(users::set_disabled(&db, &id, false).await?, no_such(&id));
                println!("{id} is enabled.");
            }
            Self::Remove { id } => {
                ensure!(users::remove_user(&db, &id).await?, no_such(&id));
                println!("{id} is removed.");
            }
            Self::Import { file } => {
                let channels: Vec<&str> = config.channels.keys().map(String::as_str).collect();
                let new = import::read_json_lines(&file, |user: &UserAccount| user.find_problem(&channels))?;
                println!("{} users imported.", users::import_users(&db, &new).await?);
            }
            Self::List { json } => {
                let list = users::list_users(&db).await?;
                if json {
                    output::print_json(&list)?;
                } else {
                    let rows = list.into_iter().map(|ListedUser { user: u, disabled_at }| {
                        let disabled = or_dash(disabled_at.map(format_time));
                        [u.id, u.name, format!("{:?}", u.role).to_lowercase(), u.channel, disabled]
                    });
                    output::print_rows(
                        &["ID", "NAME", "ROLE", "CHANNEL", "DISABLED"],
                        rows,
                        "No users. Add some: dispatchq user import FILE",
                    );
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
