//! `dispatchq apikey create|rotate|list|scope|revoke`. These commands need only Postgres.

use std::{process::ExitCode, time::Duration};

use anyhow::{Context, ensure};
use clap::{ArgGroup, ValueEnum};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    consent::ask_person,
    output,
    remote::{
        ApiClient, ListedItems, PageNames,
        fields::{show_field, show_time},
    },
};
use model::{
    bounds::{DECADE, SECOND},
    duration::parse_within,
    input::{Given, parse_reason},
};
use model::{ids::DriverId, key_name};

/// Role of a key.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum RoleName {
    /// Create and cancel orders
    Producer,
    /// Answer offers and carry out orders, for one driver
    Driver,
    /// Read what staff can read, and change nothing
    Viewer,
    /// Decide on orders that wait for a person
    Dispatcher,
    /// Read everything about orders
    Support,
    /// Read everything and operate the system
    Operator,
    /// All rights
    Admin,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Create a key and print it; it cannot be printed again
    Create {
        /// Name of the key's holder, as the history shows it; no other live key may have this name
        name: String,
        #[arg(long)]
        role: RoleName,
        /// Driver that this key acts for (role driver)
        #[arg(long, value_name = "ID", required_if_eq("role", "driver"))]
        driver: Option<Given<DriverId>>,
        /// Time until the key expires, for example 90days [default: it does not expire]
        #[arg(long, value_name = "TIME", value_parser = parse_within(SECOND..=DECADE))]
        expires_in: Option<Duration>,
        /// Give the new key the orders of an earlier producer with this name
        #[arg(long)]
        take_over: bool,
        #[command(flatten)]
        scope: ScopeArgs,
        /// Reason, kept in the record
        #[arg(long, value_parser = parse_reason)]
        reason: Option<String>,
        #[arg(long)]
        json: bool,
    },
    /// Replace a key with a new one of the same name and rights
    #[command(after_help = "Orders belong to the name, so the new key can read all orders that the old one created.")]
    Rotate {
        #[arg(long)]
        name: String,
        /// Time that the old key still works
        #[arg(long, value_name = "TIME", default_value = "24h", value_parser = parse_within(SECOND..=DECADE))]
        overlap: Duration,
        /// Time until the new key expires [default: it does not expire]
        #[arg(long, value_name = "TIME", value_parser = parse_within(SECOND..=DECADE))]
        expires_in: Option<Duration>,
        /// Reason, kept in the record
        #[arg(long, value_parser = parse_reason)]
        reason: Option<String>,
        #[arg(long)]
        json: bool,
    },
    /// List keys, oldest first, without their secrets
    List {
        #[arg(long)]
        role: Option<RoleName>,
        /// Only keys of this driver
        #[arg(long, value_name = "ID")]
        driver: Option<DriverId>,
        /// Only keys whose name contains this text
        #[arg(long, value_name = "TEXT")]
        name: Option<String>,
        /// Only keys not used for this long, for example 90days
        #[arg(long, value_name = "TIME", value_parser = parse_within(SECOND..=DECADE))]
        unused_for: Option<Duration>,
        /// Include keys that are revoked, expired, or of a disabled driver
        #[arg(long)]
        all: bool,
        #[arg(long)]
        json: bool,
    },
    /// Limit the orders that the holder of a key of staff may read
    #[command(after_help = "Without --area, --service-type, --partner and --producer the limit is removed.")]
    Scope {
        /// Id of the key
        id: Uuid,
        #[command(flatten)]
        scope: ScopeArgs,
        /// Reason, kept in the record
        #[arg(long, value_parser = parse_reason)]
        reason: Option<String>,
    },
    /// Revoke keys
    Revoke(RevokeArgs),
}

/// Scope of a key. Each option may be given several times.
#[derive(Debug, clap::Args)]
pub(super) struct ScopeArgs {
    /// The key reads only orders in these areas
    #[arg(long, value_name = "ID")]
    area: Vec<String>,
    /// The key reads only orders of these service types
    #[arg(long, value_name = "NAME")]
    service_type: Vec<String>,
    /// The key reads only orders of these partners
    #[arg(long, value_name = "NAME")]
    partner: Vec<String>,
    /// The key reads only orders of these producers
    #[arg(long, value_name = "NAME")]
    producer: Vec<String>,
}

impl ScopeArgs {
    /// Returns the scope as JSON; null if no option is given.
    fn to_json(&self) -> Value {
        let lists = [
            ("areas", &self.area),
            ("service_types", &self.service_type),
            ("partners", &self.partner),
            ("producers", &self.producer),
        ];
        let given = lists.into_iter().filter(|(_, list)| !list.is_empty());
        let scope: serde_json::Map<String, Value> = given.map(|(name, list)| (name.to_owned(), json!(list))).collect();
        if scope.is_empty() { Value::Null } else { Value::Object(scope) }
    }
}

#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("which").required(true).args(["id", "driver", "name"]))]
pub(super) struct RevokeArgs {
    /// Id of the key
    id: Option<Uuid>,
    /// All keys of this driver
    #[arg(long, value_name = "ID")]
    driver: Option<DriverId>,
    /// All keys of this name, including a replaced key that still works
    #[arg(long)]
    name: Option<String>,
    /// Print which keys would be revoked, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Reason, kept in the record; required with --name and --driver
    #[arg(long, value_parser = parse_reason)]
    reason: Option<String>,
    /// Do not ask for confirmation when revoking the keys of a name or driver
    #[arg(long)]
    yes: bool,
    #[arg(long)]
    json: bool,
}

impl RevokeArgs {
    /// Asks for confirmation before several keys are revoked.
    fn ask_consent(&self) -> anyhow::Result<()> {
        let whose = match (&self.driver, &self.name) {
            (Some(driver), _) => format!("driver {driver}"),
            (_, Some(name)) => format!("'{name}'"),
            _ => return Ok(()),
        };
        if self.dry_run {
            return Ok(());
        }
        ensure!(ask_person(self.yes, &format!("revoke the keys of {whose}?"))?, "nothing was revoked");
        Ok(())
    }
}

impl Command {
    pub(super) async fn run(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        match self {
            Self::Create { name, role, driver, expires_in, take_over, scope, reason, json } => {
                let is_driver = matches!(role, RoleName::Driver);
                ensure!(is_driver == driver.is_some(), "--driver and --role driver must be given together");
                let mut new = json!({
                    "name": name,
                    "role": role_word(role),
                    "driver_id": driver.map(|Given(id)| id),
                    "expires_in_sec": expires_in.map(|time| time.as_secs()),
                    "reason": api.reason_of_change(reason)?,
                });
                if take_over {
                    new["take_over"] = json!(true);
                }
                let scope = scope.to_json();
                if !scope.is_null() {
                    new["scope"] = scope;
                }
                show_made(&api.post(&["admin", "keys"], &new).await?, json)?;
            }
            Self::Rotate { name, overlap, expires_in, reason, json } => {
                let wanted = json!({
                    "name": name,
                    "overlap_sec": overlap.as_secs(),
                    "expires_in_sec": expires_in.map(|time| time.as_secs()),
                    "reason": api.reason_of_change(reason)?,
                });
                show_made(&api.post(&["admin", "keys", "rotate"], &wanted).await?, json)?;
            }
            Self::List { role, driver, name, unused_for, all, json } => {
                let mut query = vec![("all", all.to_string())];
                query.extend(role.map(|role| ("role", role_word(role))));
                query.extend(driver.map(|driver| ("driver_id", driver.into_string())));
                query.extend(name.map(|name| ("name", name)));
                query.extend(unused_for.map(|time| ("unused_for_sec", time.as_secs().to_string())));
                let keys = list_keys(api, &query).await?;
                if json {
                    output::print_json(&keys)?;
                } else {
                    output::print_rows(&HEADINGS, keys.iter().map(format_key), NO_KEYS);
                }
            }
            Self::Scope { id, scope, reason } => {
                let scope = scope.to_json();
                let wanted = json!({ "scope": scope, "reason": api.reason_of_change(reason)? });
                api.put(&["admin", "keys", &id.to_string(), "scope"], &wanted).await?;
                let now = if scope.is_null() { "reads all orders" } else { "reads only the orders of its scope" };
                output::print_escaped(&format!("{id} {now}."));
            }
            Self::Revoke(revoke) => revoke.run(api).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl RevokeArgs {
    async fn run(self, api: &ApiClient) -> anyhow::Result<()> {
        let reason = if self.dry_run { None } else { api.reason_of_change(self.reason.clone())? };
        let is_one = self.id.is_some();
        ensure!(
            is_one || self.dry_run || reason.is_some(),
            "--reason is required: it is kept in the record with the actor"
        );
        self.ask_consent()?;
        let selected = match (self.id, &self.driver, &self.name) {
            (Some(id), ..) => list_live(api, None).await?.into_iter().filter(|key| key["id"] == json!(id)).collect(),
            (_, Some(driver), _) => list_live(api, Some(("driver_id", driver.to_string()))).await?,
            (.., name) => {
                let name = name.clone().unwrap_or_default();
                let mut keys = list_live(api, Some(("name", name.clone()))).await?;
                let wanted = key_name::fold(&name);
                keys.retain(|key| key_name::fold(key["name"].as_str().unwrap_or_default()) == wanted);
                keys
            }
        };
        ensure!(!selected.is_empty(), "no such live key; see: dispatchq apikey list");
        let mut done: Vec<(Uuid, String)> = Vec::new();
        for key in selected {
            let (id, name) = (show_field(&key, "id"), show_field(&key, "name"));
            if !self.dry_run {
                let revoked = api.post(&["admin", "keys", &id, "revoke"], &json!({ "reason": reason })).await;
                match revoked {
                    // Another person revoked the key after it was listed.
                    Err(error) if error.is_refusal("KEY_NOT_FOUND") => continue,
                    revoked => {
                        revoked.with_context(|| {
                            format!("{} keys were revoked before the error and stay revoked", done.len())
                        })?;
                    }
                }
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

/// Returns all keys that are not revoked. This includes keys that the API refuses now: the key of a disabled driver
/// works again when the driver is enabled.
async fn list_live(api: &ApiClient, only: Option<(&str, String)>) -> anyhow::Result<Vec<Value>> {
    let mut query = vec![("all", true.to_string())];
    query.extend(only);
    let mut keys = list_keys(api, &query).await?;
    keys.retain(|key| key["revoked_at"].is_null());
    Ok(keys)
}

fn role_word(role: RoleName) -> String {
    role.to_possible_value().map(|word| word.get_name().to_owned()).unwrap_or_default()
}

fn print_revoked(keys: &[(Uuid, String)], dry_run: bool, json: bool) -> anyhow::Result<()> {
    if json {
        let keys: Vec<_> = keys.iter().map(|(id, name)| json!({ "id": id, "name": name })).collect();
        return output::print_json(&json!({ "revoked": keys, "dry_run": dry_run }));
    }
    let done = if dry_run { "would be revoked" } else { "is revoked" };
    for (id, name) in keys {
        output::print_escaped(&format!("{id} ({name}) {done}."));
    }
    Ok(())
}

fn show_made(made: &Value, json: bool) -> anyhow::Result<()> {
    if json {
        return output::print_json(made);
    }
    print_key_text(made["key"].as_str().context("the answer contains no key")?);
    Ok(())
}

fn print_key_text(key: &str) {
    println!("{key}");
    output::print_note("Save it now: it is not stored and cannot be shown again.");
}

const HEADINGS: [&str; 8] = ["ID", "NAME", "ROLE", "DRIVER", "CREATED", "LAST USED", "EXPIRES", "STATE"];
const NO_KEYS: &str = "No such keys. Create one: dispatchq apikey create NAME --role producer";

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
