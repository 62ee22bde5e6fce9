//! `dispatchq user list|disable|enable|remove` over the API.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::{Command, HEADINGS, NO_USERS, ask_removal};
use crate::cli::{
    output,
    remote::{
        ApiClient,
        fields::{list_items, show_field, show_time},
        given_reason, needs_database,
    },
};

impl Command {
    pub(in crate::cli) async fn run_over_api(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
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
            Self::Import { .. } => return Err(needs_database("user import")),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Does this step with a user, and says what the user is then.
async fn change_user(
    api: &ApiClient,
    id: &str,
    (step, is): (&str, &str),
    reason: Option<String>,
) -> anyhow::Result<()> {
    api.post(&["admin", "users", id, step], &json!({ "reason": given_reason(reason)? })).await?;
    output::print_escaped(&format!("{id} is {is}."));
    Ok(())
}

fn format_user(user: &Value) -> [String; 7] {
    let [id, name, role, channel, email, phone] =
        ["id", "name", "role", "channel", "email", "phone"].map(|member| show_field(user, member));
    [id, name, role, channel, email, phone, show_time(user, "disabled_at")]
}
