//! `dispatchq apikey` over the API.

use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use serde_json::{Value, json};
use uuid::Uuid;

use model::input::Given;

use super::{Command, HEADINGS, NO_KEYS, RevokeArgs, RoleName, print_key_text, print_revoked};
use crate::cli::{
    output,
    remote::{
        ApiClient, ListedItems, PageNames,
        fields::{show_field, show_time},
        given_reason,
    },
};
use model::key_name;

impl Command {
    pub(in crate::cli) async fn run_over_api(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        match self {
            Self::Create { name, role, driver, expires_in, take_over, reason, json } => {
                let mut new = json!({
                    "name": name,
                    "role": role_word(role),
                    "driver_id": driver.map(|Given(id)| id),
                    "expires_in_sec": expires_in.map(|time| time.as_secs()),
                    "reason": given_reason(reason)?,
                });
                if take_over {
                    new["take_over"] = json!(true);
                }
                show_made(&api.post(&["admin", "keys"], &new).await?, json)?;
            }
            Self::Rotate { name, overlap, expires_in, reason, json } => {
                let wanted = json!({
                    "name": name,
                    "overlap_sec": overlap.as_secs(),
                    "expires_in_sec": expires_in.map(|time| time.as_secs()),
                    "reason": given_reason(reason)?,
                });
                show_made(&api.post(&["admin", "keys", "rotate"], &wanted).await?, json)?;
            }
            Self::List { role, driver, name, unused_for, all, json } => {
                ensure!(unused_for.is_none(), "--unused-for needs the database; last_used_at of --json says it, too");
                let mut query = vec![("all", all.to_string())];
                query.extend(role.map(|role| ("role", role_word(role))));
                query.extend(driver.map(|driver| ("driver_id", driver.into_string())));
                query.extend(name.map(|name| ("name", name)));
                let keys = list_keys(api, &query).await?;
                if json {
                    output::print_json(&keys)?;
                } else {
                    output::print_rows(&HEADINGS, keys.iter().map(format_key), NO_KEYS);
                }
            }
            Self::Revoke(revoke) => revoke.run_over_api(api).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl RevokeArgs {
    async fn run_over_api(self, api: &ApiClient) -> anyhow::Result<()> {
        self.ask_consent()?;
        let selected = match (self.id, &self.driver, &self.name) {
            (Some(id), ..) => list_keys(api, &[]).await?.into_iter().filter(|key| key["id"] == json!(id)).collect(),
            (_, Some(driver), _) => list_keys(api, &[("driver_id", driver.to_string())]).await?,
            (.., name) => {
                let name = name.clone().unwrap_or_default();
                let mut keys = list_keys(api, &[("name", name.clone())]).await?;
                let wanted = key_name::fold(&name);
                keys.retain(|key| key_name::fold(key["name"].as_str().unwrap_or_default()) == wanted);
                keys
            }
        };
        ensure!(!selected.is_empty(), "no such live key; see: dispatchq apikey list");
        let reason = if self.dry_run { String::new() } else { given_reason(self.reason)? };
        let mut done: Vec<(Uuid, String)> = Vec::new();
        for key in selected {
            let (id, name) = (show_field(&key, "id"), show_field(&key, "name"));
            if !self.dry_run {
                let revoked = api.post(&["admin", "keys", &id, "revoke"], &json!({ "reason": reason })).await;
                revoked.with_context(|| format!("{} keys are revoked; what is done stays done", done.len()))?;
            }
            done.push((id.parse()?, name));
        }
        print_revoked(&done, self.dry_run, self.json)
    }
}

async fn list_keys(api: &ApiClient, query: &[(&str, String)]) -> anyhow::Result<Vec<Value>> {
    let ListedItems { items, .. } = api.list(&["admin", "keys"], query, PageNames::of("keys"), usize::MAX).await?;
    Ok(items)
}

fn role_word(role: RoleName) -> String {
    role.to_possible_value().map(|word| word.get_name().to_owned()).unwrap_or_default()
}

fn show_made(made: &Value, json: bool) -> anyhow::Result<()> {
    if json {
        return output::print_json(made);
    }
    print_key_text(made["key"].as_str().context("the answer holds no key")?);
    Ok(())
}

fn format_key(key: &Value) -> [String; 8] {
    let state = match (key["revoked_at"].is_null(), key["superseded_at"].is_null(), key["valid"] == true) {
        (false, ..) => format!("revoked {}", show_time(key, "revoked_at")),
        (true, false, true) => format!("replaced {}", show_time(key, "superseded_at")),
        (true, true, true) => "valid".to_owned(),
        (true, _, false) => "refused".to_owned(),
    };
    [
        show_field(key, "id"),
        show_field(key, "name"),
        show_field(key, "role"),
        show_field(key, "driver_id"),
        show_time(key, "created_at"),
        show_time(key, "last_used_at"),
        show_time(key, "expires_at"),
        state,
    ]
}
