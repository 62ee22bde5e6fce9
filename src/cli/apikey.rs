//! `dispatchq apikey create|list|revoke`.

use std::process::ExitCode;

use anyhow::ensure;
use serde_json::json;
use uuid::Uuid;

use super::output::{self, or_dash, time};
use crate::{
    app::App,
    people::api_keys::{self, Role},
};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Make a key; it is shown this once
    Create {
        /// What the key is for, as the history will name it
        name: String,
        #[arg(long)]
        role: Role,
        /// The driver this key acts for (role driver)
        #[arg(long, value_name = "ID", required_if_eq("role", "driver"))]
        driver: Option<String>,
        #[arg(long)]
        json: bool,
    },
    /// All keys, without the keys
    List {
        #[arg(long)]
        json: bool,
    },
    /// Make a key useless
    Revoke { id: Uuid },
}

impl Command {
    pub(super) async fn run(self, app: App) -> anyhow::Result<ExitCode> {
        match self {
            Self::Create { name, role, driver, json } => {
                ensure!((1..=64).contains(&name.chars().count()), "a name has 1 to 64 characters");
                ensure!((role == Role::Driver) == driver.is_some(), "--driver goes with --role driver");
                let (row, key) = api_keys::create(&app.db, &name, role, driver.as_deref()).await?;
                if json {
                    output::json(&json!({ "id": row.id, "name": row.name, "role": row.role, "key": key }))?;
                } else {
                    println!("{key}");
                    eprintln!("Keep it now: it is stored nowhere and cannot be shown again.");
                }
            }
            Self::List { json: true } => output::json(&api_keys::list(&app.db).await?)?,
            Self::List { json: false } => {
                let keys = api_keys::list(&app.db).await?;
                let rows = keys.into_iter().map(|k| {
                    [
                        k.id.to_string(),
                        k.name,
                        format!("{:?}", k.role).to_lowercase(),
                        or_dash(k.driver_id),
                        time(k.created_at),
                        or_dash(k.revoked_at.map(time)),
                    ]
                });
                let headings = ["ID", "NAME", "ROLE", "DRIVER", "CREATED", "REVOKED"];
                output::table(&headings, rows, "No keys. Make one: dispatchq apikey create NAME --role producer");
            }
            Self::Revoke { id } => {
                ensure!(api_keys::revoke(&app.db, id).await?, "no live key {id}; see: dispatchq apikey list");
                println!("The key is revoked.");
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
