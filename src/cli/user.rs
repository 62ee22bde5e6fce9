//! `dispatchq user import|list|disable|enable|remove`. Postgres alone is needed.

mod remote;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{anyhow, ensure};

use super::{
    consent::ask_at_once,
    import,
    order::cli_operator,
    output::{self, format_time, or_dash},
};
use accounts::{
    recorded,
    users::{self, ListedUser, UserAccount, UserError},
};
use foundation::{db, staff_actions::ActionAuthor};
use model::input::parse_reason;
use settings::Config;

const HEADINGS: [&str; 7] = ["ID", "NAME", "ROLE", "CHANNEL", "EMAIL", "PHONE", "DISABLED"];
const NO_USERS: &str = "No users. Add some: dispatchq user import FILE";

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Add users, or bring known ones up to date
    #[command(after_help = "One JSON object per line:\n  \
        {\"id\": \"anna\", \"name\": \"Anna\", \"role\": \"dispatcher\", \"channel\": \"email\", \
        \"email\": \"anna@example.com\"}")]
    Import {
        /// File of JSON lines; "-" is standard input
        file: PathBuf,
        #[arg(long, value_parser = parse_reason)]
        reason: Option<String>,
    },
    /// Users and the channels that reach them
    List {
        #[arg(long)]
        json: bool,
    },
    /// Tell this person nothing more
    Disable {
        id: String,
        #[arg(long, value_parser = parse_reason)]
        reason: Option<String>,
    },
    /// Undo `disable`
    Enable {
        id: String,
        #[arg(long, value_parser = parse_reason)]
        reason: Option<String>,
    },
    /// Remove a person
    #[command(
        after_help = "Keys that this person holds are revoked by name: dispatchq apikey revoke --name NAME --reason TEXT"
    )]
    Remove {
        id: String,
        #[arg(long, value_parser = parse_reason)]
        reason: String,
        /// Do not ask before the person is removed
        #[arg(long)]
        yes: bool,
    },
}

fn ask_removal(id: &str, yes: bool) -> anyhow::Result<()> {
    ensure!(ask_at_once(yes, &format!("remove user {id}?"))?, "nothing was removed");
    Ok(())
}

impl Command {
    pub(super) async fn run(self, config: Config) -> anyhow::Result<ExitCode> {
        let db = db::connect_pool(&config.database).await?;
        db::check_schema(&db).await?;
        let author = cli_operator();
        let with_cure = |error: UserError, id: &str| match error {
            UserError::NotFound => anyhow!("no user '{id}'; see: dispatchq user list"),
            other => other.into(),
        };
        match self {
            Self::Disable { id, reason } => {
                let by = ActionAuthor { actor: &author, reason: reason.as_deref() };
                recorded::set_user_disabled(&db, &id, true, by).await.map_err(|error| with_cure(error, &id))?;
                output::print_escaped(&format!("{id} is disabled."));
            }
            Self::Enable { id, reason } => {
                let by = ActionAuthor { actor: &author, reason: reason.as_deref() };
                recorded::set_user_disabled(&db, &id, false, by).await.map_err(|error| with_cure(error, &id))?;
                output::print_escaped(&format!("{id} is enabled."));
            }
            Self::Remove { id, reason, yes } => {
                ask_removal(&id, yes)?;
                let by = ActionAuthor { actor: &author, reason: Some(&reason) };
                recorded::remove_user(&db, &id, by).await.map_err(|error| with_cure(error, &id))?;
                output::print_escaped(&format!("{id} is removed."));
            }
            Self::Import { file, reason } => {
                let channels: Vec<&str> = config.channels.keys().map(String::as_str).collect();
                let new = import::read_json_lines(
                    &file,
                    |user: &UserAccount| user.id.clone(),
                    |user| user.find_problem(&channels).or_else(|| users::find_missing_phone(user, &config)),
                )?;
                let by = ActionAuthor { actor: &author, reason: reason.as_deref() };
                recorded::import_users(&db, &new, by).await?;
                output::print_text(&format!("{} users imported.", new.len()));
            }
            Self::List { json } => {
                let list = users::list_users(&db).await?;
                if json {
                    output::print_json(&list)?;
                } else {
                    let rows = list.into_iter().map(|ListedUser { user: u, disabled_at }| {
                        let disabled = or_dash(disabled_at.map(format_time));
                        [
                            u.id,
                            u.name,
                            format!("{:?}", u.role).to_lowercase(),
                            u.channel,
                            or_dash(u.email),
                            or_dash(u.phone),
                            disabled,
                        ]
                    });
                    output::print_rows(&HEADINGS, rows, NO_USERS);
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
