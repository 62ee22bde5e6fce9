//! `dispatchq user import|list|disable|enable|remove`. These commands need only Postgres.

use std::{path::PathBuf, process::ExitCode};

use anyhow::ensure;
use serde_json::{Value, json};

use super::{
    consent::ask_at_once,
    output,
    remote::{
        ApiClient,
        fields::{list_items, show_field, show_time},
        lines::import_lines,
    },
};
use model::input::parse_reason;

const HEADINGS: [&str; 7] = ["ID", "NAME", "ROLE", "CHANNEL", "EMAIL", "PHONE", "DISABLED"];
const NO_USERS: &str = "No users. Add some: dispatchq user import FILE";

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Add users, or update known ones
    #[command(after_help = "One JSON object per line:\n  \
        {\"id\": \"anna\", \"name\": \"Anna\", \"role\": \"dispatcher\", \"channel\": \"email\", \
        \"email\": \"anna@example.com\"}")]
    Import {
        /// File of JSON lines; "-" is standard input
        file: PathBuf,
        #[arg(long, value_parser = parse_reason)]
        reason: Option<String>,
    },
    /// List users and their channels
    List {
        #[arg(long)]
        json: bool,
    },
    /// Disable a user, who then receives no messages
    Disable {
        id: String,
        #[arg(long, value_parser = parse_reason)]
        reason: Option<String>,
    },
    /// Enable a disabled user
    Enable {
        id: String,
        #[arg(long, value_parser = parse_reason)]
        reason: Option<String>,
    },
    /// Remove a user
    #[command(after_help = "Revoke this person's keys by name: dispatchq apikey revoke --name NAME --reason TEXT")]
    Remove {
        id: String,
        #[arg(long, value_parser = parse_reason)]
        reason: String,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
}

fn ask_removal(id: &str, yes: bool) -> anyhow::Result<()> {
    ensure!(ask_at_once(yes, &format!("remove user {id}?"))?, "nothing was removed");
    Ok(())
}

impl Command {
    pub(super) async fn run(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { json } => {
                let listed = api.get(&["admin", "users"], &[]).await?;
                if json {
                    output::print_json(&listed["users"])?;
                } else {
                    output::print_rows(&HEADINGS, list_items(&listed, "users").iter().map(format_user), NO_USERS);
                }
            }
            Self::Disable { id, reason } => change_user(api, &id, ("disable", "disabled"), reason).await?,
            Self::Enable { id, reason } => change_user(api, &id, ("enable", "enabled"), reason).await?,
            Self::Remove { id, reason, yes } => {
                ask_removal(&id, yes)?;
                change_user(api, &id, ("remove", "removed"), Some(reason)).await?;
            }
            Self::Import { file, reason } => {
                let imported = import_lines(api, &["admin", "users", "import"], &file, reason).await?;
                output::print_escaped(&format!("{} users imported.", show_field(&imported, "imported")));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Performs this step for a user, and prints the new state.
async fn change_user(
    api: &ApiClient,
    id: &str,
    (step, is): (&str, &str),
    reason: Option<String>,
) -> anyhow::Result<()> {
    api.post(&["admin", "users", id, step], &json!({ "reason": api.reason_of_change(reason)? })).await?;
    output::print_escaped(&format!("{id} is {is}."));
    Ok(())
}

fn format_user(user: &Value) -> [String; 7] {
    let [id, name, role, channel, email, phone] =
        ["id", "name", "role", "channel", "email", "phone"].map(|member| show_field(user, member));
    [id, name, role, channel, email, phone, show_time(user, "disabled_at")]
}
