//! `dispatchq apikey create|rotate|list|revoke`. Postgres alone is needed.

mod remote;

use std::{process::ExitCode, time::Duration};

use anyhow::ensure;
use clap::ArgGroup;
use serde_json::json;
use uuid::Uuid;

use model::{
    bounds::{DECADE, SECOND},
    duration::parse_within,
    input::{Given, parse_reason},
};

use super::{
    consent::ask_person,
    order::cli_operator,
    output::{self, format_time, or_dash},
};
use accounts::{
    api_keys::{AccountRole, ApiKey},
    key_admin::{self, KeyFilter, KeySelection, ListedKey, NewKey},
    recorded,
};
use foundation::{
    db::{self, Pool},
    staff_actions::ActionAuthor,
};
use model::ids::DriverId;
use settings::Config;

/// [`AccountRole`] as it is written.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum RoleName {
    /// Creates and cancels orders.
    Producer,
    /// Answers offers and carries out orders, for one driver.
    Driver,
    /// Reads what staff read, and changes nothing.
    Viewer,
    /// Decides on orders that wait for a person.
    Dispatcher,
    /// Reads everything about orders.
    Support,
    /// Reads everything, runs the system.
    Operator,
    /// May do all of it.
    Admin,
}

impl From<RoleName> for AccountRole {
    fn from(name: RoleName) -> Self {
        match name {
            RoleName::Producer => Self::Producer,
            RoleName::Driver => Self::Driver,
            RoleName::Viewer => Self::Viewer,
            RoleName::Dispatcher => Self::Dispatcher,
            RoleName::Support => Self::Support,
            RoleName::Operator => Self::Operator,
            RoleName::Admin => Self::Admin,
        }
    }
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Make a key; it is shown this once
    Create {
        /// What the key is for, as the history will name it; no other live key has this name
        name: String,
        #[arg(long)]
        role: RoleName,
        /// The driver this key acts for (role driver)
        #[arg(long, value_name = "ID", required_if_eq("role", "driver"))]
        driver: Option<Given<DriverId>>,
        /// How long it is valid, for example 90days [default: until it is revoked]
        #[arg(long, value_name = "TIME", value_parser = parse_within(SECOND..=DECADE))]
        expires_in: Option<Duration>,
        /// Give the new key the orders of an earlier producer of this name
        #[arg(long)]
        take_over: bool,
        /// Why; kept in the record
        #[arg(long, value_parser = parse_reason)]
        reason: Option<String>,
        #[arg(long)]
        json: bool,
    },
    /// Replace a key by a new one of the same name and rights
    #[command(after_help = "Orders stay with the name, so the new key sees all that the old one created.")]
    Rotate {
        #[arg(long)]
        name: String,
        /// How long the old key goes on working
        #[arg(long, value_name = "TIME", default_value = "24h", value_parser = parse_within(SECOND..=DECADE))]
        overlap: Duration,
        /// How long the new key is valid [default: until it is revoked]
        #[arg(long, value_name = "TIME", value_parser = parse_within(SECOND..=DECADE))]
        expires_in: Option<Duration>,
        /// Why; kept in the record
        #[arg(long, value_parser = parse_reason)]
        reason: Option<String>,
        #[arg(long)]
        json: bool,
    },
    /// Keys, oldest first, without the keys themselves
    List {
        #[arg(long)]
        role: Option<RoleName>,
        /// Only keys of this driver
        #[arg(long, value_name = "ID")]
        driver: Option<DriverId>,
        /// Only keys whose name holds this text
        #[arg(long, value_name = "TEXT")]
        name: Option<String>,
        /// Only keys not used for so long, for example 90days
        #[arg(long, value_name = "TIME", value_parser = parse_within(SECOND..=DECADE))]
        unused_for: Option<Duration>,
        /// Also keys that are revoked, expired or of a disabled driver
        #[arg(long)]
        all: bool,
        #[arg(long)]
        json: bool,
    },
    /// Make keys useless
    Revoke(RevokeArgs),
}

#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("which").required(true).args(["id", "driver", "name"]))]
pub(super) struct RevokeArgs {
    /// This key
    id: Option<Uuid>,
    /// All keys of this driver
    #[arg(long, value_name = "ID")]
    driver: Option<DriverId>,
    /// The keys of this name, also one that was replaced and still works
    #[arg(long)]
    name: Option<String>,
    /// Only say which would be revoked
    #[arg(long)]
    dry_run: bool,
    /// Why; kept in the record. Needed with --name and --driver
    #[arg(long, value_parser = parse_reason)]
    reason: Option<String>,
    /// Do not ask before the keys of a name or driver are revoked
    #[arg(long)]
    yes: bool,
    #[arg(long)]
    json: bool,
}

impl RevokeArgs {
    /// Asks a person before several keys are revoked, and requires a reason for it.
    fn ask_consent(&self) -> anyhow::Result<()> {
        let whose = match (&self.driver, &self.name) {
            (Some(driver), _) => format!("driver {driver}"),
            (_, Some(name)) => format!("'{name}'"),
            _ => return Ok(()),
        };
        if self.dry_run {
            return Ok(());
        }
        ensure!(self.reason.is_some(), "--reason must say why: it is kept with who did it");
        ensure!(ask_person(self.yes, &format!("revoke the keys of {whose}?"))?, "nothing was revoked");
        Ok(())
    }
}

impl Command {
    pub(super) async fn run(self, config: Config) -> anyhow::Result<ExitCode> {
        let db = db::connect_pool(&config.database).await?;
        db::check_schema(&db).await?;
        let author = cli_operator();
        match self {
            Self::Create { name, role, driver, expires_in, take_over, reason, json } => {
                let by = ActionAuthor { actor: &author, reason: reason.as_deref() };
                let (role, driver) = (AccountRole::from(role), driver.map(|Given(id)| id));
                ensure!((role == AccountRole::Driver) == driver.is_some(), "--driver goes with --role driver");
                let new = NewKey { name: &name, role, driver_id: driver.as_ref(), expires_in, takes_over: take_over };
                show_key(recorded::create_key(&db, &new, by).await?, json)?;
            }
            Self::Rotate { name, overlap, expires_in, reason, json } => {
                let by = ActionAuthor { actor: &author, reason: reason.as_deref() };
                show_key(recorded::rotate_key(&db, &name, overlap, expires_in, by).await?, json)?;
            }
            Self::List { role, driver, name, unused_for, all, json } => {
                let filter = KeyFilter { role: role.map(AccountRole::from), driver, name, all, unused_for };
                print_keys(key_admin::list_keys(&db, &filter).await?, json)?;
            }
            Self::Revoke(revoke) => revoke.run(&db).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl RevokeArgs {
    async fn run(self, db: &Pool) -> anyhow::Result<()> {
        self.ask_consent()?;
        let which = match (self.id, self.driver, self.name) {
            (Some(id), ..) => KeySelection::Id(id),
            (_, Some(driver), _) => KeySelection::Driver(driver),
            (.., name) => KeySelection::Name(name.unwrap_or_default()),
        };
        let keys = if self.dry_run {
            key_admin::list_revocable(db, &which).await?
        } else {
            let by = ActionAuthor { actor: &cli_operator(), reason: self.reason.as_deref() };
            recorded::revoke_keys(db, &which, by).await?
        };
        ensure!(!keys.is_empty(), "no such live key; see: dispatchq apikey list");
        print_revoked(&keys, self.dry_run, self.json)
    }
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

fn show_key((row, key): (ApiKey, String), json: bool) -> anyhow::Result<()> {
    if json {
        return output::print_json(&json!({ "id": row.id, "name": row.name, "role": row.role, "key": key }));
    }
    print_key_text(&key);
    Ok(())
}

fn print_key_text(key: &str) {
    println!("{key}");
    output::print_note("Keep it now: it is stored nowhere and cannot be shown again.");
}

const HEADINGS: [&str; 8] = ["ID", "NAME", "ROLE", "DRIVER", "CREATED", "LAST USED", "EXPIRES", "STATE"];
const NO_KEYS: &str = "No such keys. Make one: dispatchq apikey create NAME --role producer";

fn print_keys(keys: Vec<ListedKey>, json: bool) -> anyhow::Result<()> {
    if json {
        return output::print_json(&keys);
    }
    let rows = keys.into_iter().map(|k| {
        let state = match (&k.revoked_at, &k.superseded_at, k.valid) {
            (Some(at), ..) => format!("revoked {}", format_time(*at)),
            (None, Some(at), true) => format!("replaced {}", format_time(*at)),
            (None, _, true) => "valid".to_owned(),
            (None, _, false) => "refused".to_owned(),
        };
        [
            k.id.to_string(),
            k.name,
            format!("{:?}", k.role).to_lowercase(),
            or_dash(k.driver_id),
            format_time(k.created_at),
            or_dash(k.last_used_at.map(format_time)),
            or_dash(k.expires_at.map(format_time)),
            state,
        ]
    });
    output::print_rows(&HEADINGS, rows, NO_KEYS);
    Ok(())
}
