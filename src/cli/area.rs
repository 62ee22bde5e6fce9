//! `dispatchq area list|show|set|advise|override|flag|import|export|remove|report|changes`. `set` changes the limits of
//! one area. `advise` proposes thresholds.

mod advise;
mod report;
mod set;
mod show;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, ensure};
use model::{
    bounds::{DECADE, SECOND},
    duration::parse_within,
    input::parse_reason,
};
use reqwest::Method;
use serde_json::{Value, json};

use self::{advise::AreaAdviseArgs, set::AreaSetArgs};
use super::{
    consent,
    output::{self, format_time, shorten_text},
    remote::{
        ApiClient, ListedItems, PageNames,
        fields::{list_items, read_time, show_field, show_time},
        source::ImportSource,
    },
};
use model::ids::AreaId;

/// Member names of a page of changes. The API returns fewer changes per page than other items.
const CHANGES: PageNames = PageNames::before("changes", 200);
const HEADINGS: [&str; 8] = ["AREA", "NAME", "PRIORITY", "SERVICE", "WAITING", "THRESHOLD", "MODE", "OLDEST SINCE"];
const NO_AREAS: &str = "No areas. Add some: dispatchq area import FILE";

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// List areas and their status
    List {
        #[arg(long)]
        json: bool,
    },
    /// Show an area: its limits, its status, and the values in effect
    Show {
        area: AreaId,
        #[arg(long)]
        json: bool,
    },
    /// Change how many orders may wait in an area, and for how long; other settings do not change
    #[command(
        after_help = "Examples:\n  dispatchq area set JKT-PUSAT --service-type RIDE --max-waiting-orders 150 --reason \"Lebaran\"\n  dispatchq area set JKT-PUSAT --service-type RIDE --schedule \"MON-FRI 07:00-09:30=60; SAT,SUN 10:00-22:00=80\"\n  dispatchq area set JKT-PUSAT --service-type RIDE --inherit schedule,max-waiting-orders"
    )]
    Set(Box<AreaSetArgs>),
    /// Propose thresholds by time of day from the area's history, and test them on later days; changes nothing
    #[command(
        after_help = "Example:\n  dispatchq area advise JKT-PUSAT --service-type RIDE --wait 10m --days 28 --judge-days 14"
    )]
    Advise(AreaAdviseArgs),
    /// Force an area to be busy or available regardless of its count; auto ends the override
    #[command(
        after_help = "Example:\n  dispatchq area override JKT-PUSAT force-busy --reason \"Banjir di area\" --for 2h"
    )]
    Override {
        area: AreaId,
        #[arg(value_enum)]
        status: WantedStatus,
        #[arg(long, value_parser = parse_reason)]
        reason: Option<String>,
        /// Duration of the override, such as 2h [default: until it is ended]
        #[arg(long = "for", value_name = "DURATION", value_parser = parse_within(SECOND..=DECADE))]
        lasts: Option<Duration>,
    },
    /// Show or change whether thresholds refuse orders, and for whom; overrides and disabled areas always apply
    #[command(
        after_help = "Example:\n  dispatchq area flag --enabled true --shadow true --areas JKT-PUSAT,CGK-T3 --percentage 10"
    )]
    Flag(AreaFlagArgs),
    /// Add or update areas from GeoJSON (properties area_id, name, priority, geohashes, service_type, time_zone)
    Import {
        /// File with a FeatureCollection; "-" is standard input
        file: PathBuf,
        /// Remove the areas that are not in the file
        #[arg(long)]
        replace: bool,
        /// Check whether the file can be imported, and change nothing
        #[arg(long)]
        check: bool,
        #[arg(long, value_parser = parse_reason)]
        reason: Option<String>,
    },
    /// Print all areas as GeoJSON, in the format that `import` reads
    Export,
    /// Remove an area and its limits
    Remove {
        area: AreaId,
        /// Reason, kept with the change
        #[arg(long, required = true, value_name = "TEXT", value_parser = parse_reason)]
        reason: String,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
    /// Report utilisation, refusals and bypasses hour by hour; --threshold adds what another threshold would have
    /// refused
    #[command(after_help = "Example:\n  dispatchq area report --area JKT-PUSAT --hours 168 --threshold 80")]
    Report {
        #[arg(long)]
        area: Option<AreaId>,
        /// Number of hours to report, up to now
        #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=87_600))]
        hours: u32,
        /// Threshold to test on the recorded counts
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(0..=1_000_000))]
        threshold: Option<i64>,
        #[arg(long)]
        json: bool,
    },
    /// List changes of areas: who made them, when and why
    Changes {
        #[arg(long)]
        area: Option<AreaId>,
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum WantedStatus {
    ForceBusy,
    ForceAvailable,
    Auto,
}

#[derive(Debug, clap::Args)]
pub(super) struct AreaFlagArgs {
    #[arg(long)]
    enabled: Option<bool>,
    /// Log and record requests over a threshold instead of refusing them
    #[arg(long)]
    shadow: Option<bool>,
    /// Only these areas; "all" for every area
    #[arg(long, value_delimiter = ',')]
    areas: Option<Vec<AreaId>>,
    /// Only these channels; "all" for every channel
    #[arg(long, value_delimiter = ',')]
    channels: Option<Vec<String>>,
    /// Percentage of users to whom thresholds apply; the choice depends only on the user's id
    #[arg(long)]
    percentage: Option<i32>,
    #[arg(long, value_parser = parse_reason)]
    reason: Option<String>,
    #[arg(long)]
    json: bool,
}

impl Command {
    pub(super) async fn run(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { json } => list_areas(api, json).await?,
            Self::Show { area, json } => {
                let shown = api.get(&area_path(&area, &[]), &[]).await?;
                if json {
                    let (areas, limits, status) = ([&shown["area"]], &shown["limits"], &shown["status"]);
                    output::print_json(&json!({ "areas": areas, "limits": limits, "status": status }))?;
                } else {
                    show::print_area(&shown["area"], list_items(&shown, "limits"), list_items(&shown, "status"));
                }
            }
            Self::Set(set) => set.run(api).await?,
            Self::Advise(advise) => advise.run(api).await?,
            Self::Override { area, status, reason, lasts } => {
                let lasts = lasts.map(|lasts| lasts.as_secs());
                let status = match status {
                    WantedStatus::ForceBusy => "FORCE_BUSY",
                    WantedStatus::ForceAvailable => "FORCE_AVAILABLE",
                    WantedStatus::Auto => "AUTO",
                };
                let body = json!({ "status": status, "reason": reason, "expires_in_sec": lasts });
                let answer = api.post(&area_path(&area, &["override"]), &body).await?;
                let until = read_time(&answer, "expires_at").map(|at| format!(" until {}", format_time(at)));
                output::print_escaped(&format!("{area} is {status}{}.", until.unwrap_or_default()));
            }
            Self::Flag(flag) => flag.run(api).await?,
            Self::Import { file, replace, check, reason } => {
                import_file(api, &file, (replace, check), reason).await?;
            }
            Self::Export => output::print_json(&api.get(&dispatcher_path(&["areas.geojson"]), &[]).await?)?,
            Self::Remove { area, reason, yes } => {
                ensure!(consent::ask_at_once(yes, &format!("remove {area} with its limits?"))?, "nothing was removed");
                api.delete(&area_path(&area, &[]), &[("reason", reason)]).await?;
                output::print_escaped(&format!("{area} is removed."));
            }
            Self::Report { area, hours, threshold, json } => {
                report::print_report(api, area.as_ref(), (hours, threshold), json).await?;
            }
            Self::Changes { area, limit, json } => print_changes(api, area.as_ref(), limit, json).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns a path below `admin/dispatcher`, where areas and their flag are.
fn dispatcher_path<'a>(rest: &[&'a str]) -> Vec<&'a str> {
    [&["admin", "dispatcher"], rest].concat()
}

fn area_path<'a>(area: &'a AreaId, rest: &[&'a str]) -> Vec<&'a str> {
    [&["admin", "dispatcher", "areas", &**area], rest].concat()
}

async fn list_areas(api: &ApiClient, json: bool) -> anyhow::Result<()> {
    let listed = api.get(&dispatcher_path(&["areas"]), &[]).await?;
    let status = api.get(&dispatcher_path(&["areas", "status"]), &[]).await?;
    if json {
        let (areas, limits) = (&listed["areas"], &listed["limits"]);
        return output::print_json(&json!({ "areas": areas, "limits": limits, "status": status["areas"] }));
    }
    let rows = list_items(&listed, "areas").iter().flat_map(|area| {
        let of_area = list_items(&status, "areas").iter().filter(|row| row["area_id"] == area["id"]);
        let own: Vec<_> = of_area.map(|row| format_area(area, row)).collect();
        if own.is_empty() { vec![format_area(area, &Value::Null)] } else { own }
    });
    output::print_rows(&HEADINGS, rows, NO_AREAS);
    Ok(())
}

/// Formats an area and its status for one service type as a table row.
fn format_area(area: &Value, status: &Value) -> [String; 8] {
    let mode = show::describe_mode(&show_field(status, "mode"), &show_field(status, "enforcement"));
    [
        show_field(area, "id"),
        show_field(area, "name"),
        show_field(area, "priority"),
        show_field(status, "service_type"),
        show_field(status, "waiting"),
        show_field(status, "threshold"),
        mode,
        show_time(status, "oldest_waiting_since"),
    ]
}

impl AreaFlagArgs {
    async fn run(self, api: &ApiClient) -> anyhow::Result<()> {
        let path = dispatcher_path(&["flag"]);
        let before = api.get(&path, &[]).await?;
        let mut flag = before.clone();
        let changes = [
            ("enabled", self.enabled.map(Value::from)),
            ("shadow_mode", self.shadow.map(Value::from)),
            ("enabled_areas", self.areas.map(|areas| named_or_all(&areas))),
            ("enabled_channels", self.channels.map(|channels| named_or_all(&channels))),
            ("percentage", self.percentage.map(Value::from)),
        ];
        for (name, value) in changes {
            if let Some(value) = value {
                flag[name] = value;
            }
        }
        if flag != before {
            let version = before["version"].as_i64();
            if let Some(members) = flag.as_object_mut() {
                members.remove("version");
            }
            flag["reason"] = json!(self.reason);
            flag = api.put_version(&path, &flag, version).await?;
        }
        if self.json {
            return output::print_json(&flag);
        }
        for (name, value) in [
            ("enabled", show_field(&flag, "enabled")),
            ("shadow mode", show_field(&flag, "shadow_mode")),
            ("areas", show_names(&flag["enabled_areas"])),
            ("channels", show_names(&flag["enabled_channels"])),
            ("percentage", show_field(&flag, "percentage")),
            ("version", show_field(&flag, "version")),
        ] {
            output::print_escaped(&format!("{name:<11} {value}"));
        }
        Ok(())
    }
}

/// Returns the given names as JSON. The single name `all` becomes the empty list.
fn named_or_all<T: AsRef<str>>(names: &[T]) -> Value {
    match names {
        [only] if only.as_ref() == "all" => json!([]),
        names => names.iter().map(AsRef::as_ref).collect(),
    }
}

fn show_names(names: &Value) -> String {
    let names: Vec<_> = names.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if names.is_empty() { "all".to_owned() } else { names.join(", ") }
}

async fn import_file(
    api: &ApiClient,
    file: &Path,
    (replace, check): (bool, bool),
    reason: Option<String>,
) -> anyhow::Result<()> {
    let source = ImportSource::open(file)?;
    let mut query = vec![("replace", replace.to_string()), ("check", check.to_string())];
    query.extend(reason.map(|reason| ("reason", reason)));
    let path = dispatcher_path(&["areas"]);
    let imported = api.import((Method::PUT, &path), &query, source, "application/geo+json").await;
    let (answer, ignored) = imported.with_context(|| format!("{} cannot be imported", file.display()))?;
    if let Some(names) = ignored {
        output::print_note(&format!("Ignored members: {names}"));
    }
    let [imported, removed] = ["imported", "removed"].map(|name| show_field(&answer, name));
    if check {
        println!("{imported} areas could be imported.");
    } else {
        println!("{imported} areas imported, {removed} removed.");
    }
    Ok(())
}

async fn print_changes(api: &ApiClient, area: Option<&AreaId>, limit: u32, json: bool) -> anyhow::Result<()> {
    let path = area.map_or_else(|| dispatcher_path(&["changes"]), |area| area_path(area, &["changes"]));
    let ListedItems { items, .. } = api.list(&path, &[], CHANGES, usize::try_from(limit)?).await?;
    if json {
        return output::print_json(&items);
    }
    let rows = items.iter().map(|c| {
        let after = if c["after"].is_null() { "-".to_owned() } else { shorten_text(&c["after"].to_string(), 80) };
        let [actor, what, area, reason] = ["actor", "what", "area_id", "reason"].map(|name| show_field(c, name));
        [show_time(c, "at"), actor, what, area, reason, after]
    });
    output::print_rows(&["AT", "ACTOR", "WHAT", "AREA", "REASON", "IS NOW"], rows, "No changes yet.");
    Ok(())
}
