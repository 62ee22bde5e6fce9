//! `dispatchq area list|show|set|advise|override|flag|import|export|remove|report|changes`. `set`: limits of one area.
//! `advise`: thresholds that are proposed.

mod advise;
mod remote;
mod report;
mod set;
mod show;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, ensure};
use chrono::{DateTime, Utc};
use model::{
    bounds::{DECADE, SECOND},
    duration::parse_within,
    input::parse_reason,
};
use serde::Serialize;
use serde_json::Value;

use self::{advise::AreaAdviseArgs, set::AreaSetArgs};
use super::{
    consent, import as text_file,
    order::cli_operator,
    output::{self, format_time, or_dash},
};
use app::App;
use areas::{
    import::{self, AreaFile},
    table::{self, ChangeAuthor, flag, geofences, limits, overrides},
};
use desk::reports::{
    area_report::ReportScope,
    area_status::{self, AreaStatus},
};
use model::{admission::limits::ForcedStatus, ids::AreaId};

const HEADINGS: [&str; 8] = ["AREA", "NAME", "PRIORITY", "SERVICE", "WAITING", "THRESHOLD", "MODE", "OLDEST SINCE"];
const NO_AREAS: &str = "No areas. Add some: dispatchq area import FILE";

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Areas, and how each stands
    List {
        #[arg(long)]
        json: bool,
    },
    /// One area: its limits, how it stands, and what holds there
    Show {
        area: AreaId,
        #[arg(long)]
        json: bool,
    },
    /// Change how many orders may wait in an area, and how long; what is not named stays
    #[command(
        after_help = "Examples:\n  dispatchq area set JKT-PUSAT --service-type RIDE --max-waiting-orders 150 --reason \"Lebaran\"\n  dispatchq area set JKT-PUSAT --service-type RIDE --schedule \"MON-FRI 07:00-09:30=60; SAT,SUN 10:00-22:00=80\"\n  dispatchq area set JKT-PUSAT --service-type RIDE --inherit schedule,max-waiting-orders"
    )]
    Set(Box<AreaSetArgs>),
    /// Propose thresholds by time of day from what the area has done, with reasons, judged on later days; nothing is changed
    #[command(
        after_help = "Example:\n  dispatchq area advise JKT-PUSAT --service-type RIDE --wait 10m --days 28 --judge-days 14"
    )]
    Advise(AreaAdviseArgs),
    /// Decide for an area, whatever its count: force-busy, force-available; auto gives it back
    #[command(
        after_help = "Example:\n  dispatchq area override JKT-PUSAT force-busy --reason \"Banjir di area\" --for 2h"
    )]
    Override {
        area: AreaId,
        #[arg(value_enum)]
        status: WantedStatus,
        #[arg(long, value_parser = parse_reason)]
        reason: Option<String>,
        /// How long it holds, such as 2h; without it until a person ends it
        #[arg(long = "for", value_name = "DURATION", value_parser = parse_within(SECOND..=DECADE))]
        lasts: Option<Duration>,
    },
    /// Whether thresholds refuse orders, and for whom; without an option it is shown. Overrides and disabled areas hold in any case
    #[command(
        after_help = "Example:\n  dispatchq area flag --enabled true --shadow true --areas JKT-PUSAT,CGK-T3 --percentage 10"
    )]
    Flag(AreaFlagArgs),
    /// Add areas from GeoJSON (properties area_id, name, priority, geohashes, service_type, time_zone), or bring known ones up
    /// to date
    Import {
        /// A FeatureCollection; "-" is standard input
        file: PathBuf,
        /// Remove the areas that are not in it
        #[arg(long)]
        replace: bool,
        /// Only say whether it could be imported
        #[arg(long)]
        check: bool,
        #[arg(long, value_parser = parse_reason)]
        reason: Option<String>,
    },
    /// Print all areas as GeoJSON, as `import` reads them
    Export,
    /// Remove an area with its limits
    Remove {
        area: AreaId,
        /// Why; kept with the change
        #[arg(long, required = true, value_name = "TEXT", value_parser = parse_reason)]
        reason: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Utilisation, refusals and bypasses, hour by hour; with --threshold what another threshold would have refused
    #[command(after_help = "Example:\n  dispatchq area report --area JKT-PUSAT --hours 168 --threshold 80")]
    Report {
        #[arg(long)]
        area: Option<AreaId>,
        /// Every hour and area of the last so many hours is shown
        #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=87_600))]
        hours: u32,
        /// Try this threshold out on what was counted
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(0..=1_000_000))]
        threshold: Option<i64>,
        #[arg(long)]
        json: bool,
    },
    /// Who changed what, and why
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
    /// No threshold refuses a request; those that it would have refused are logged and kept
    #[arg(long)]
    shadow: Option<bool>,
    /// Only these; "all" for all
    #[arg(long, value_delimiter = ',')]
    areas: Option<Vec<AreaId>>,
    /// Only these; "all" for all
    #[arg(long, value_delimiter = ',')]
    channels: Option<Vec<String>>,
    /// Part of the users, stable by their id
    #[arg(long)]
    percentage: Option<i32>,
    #[arg(long, value_parser = parse_reason)]
    reason: Option<String>,
    #[arg(long)]
    json: bool,
}

impl Command {
    pub(super) async fn run(self, app: App) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { json } => print_areas(&app, None, json).await?,
            Self::Show { area, json } => {
                let known = geofences::list_areas(&app.core.db).await?.into_iter().any(|row| row.id == area);
                ensure!(known, "no area {area}; see: dispatchq area list");
                print_areas(&app, Some(&area), json).await?;
            }
            Self::Set(set) => set.run(&app).await?,
            Self::Advise(advise) => advise.run(&app).await?,
            Self::Override { area, status, reason, lasts } => {
                let until =
                    lasts.map(chrono::TimeDelta::from_std).transpose()?.map(|d| app.core.database_clock.now() + d);
                let forced = match status {
                    WantedStatus::ForceBusy => Some((ForcedStatus::ForceBusy, until)),
                    WantedStatus::ForceAvailable => Some((ForcedStatus::ForceAvailable, until)),
                    WantedStatus::Auto => None,
                };
                let author = ChangeAuthor { actor: &cli_operator(), reason: reason.as_deref() };
                overrides::set_override(&app.core.db, &area, forced, None, author).await?;
                print_override(&area, forced.map_or("AUTO", |(status, _)| status.as_str()), until);
            }
            Self::Flag(flag) => flag.run(&app).await?,
            Self::Import { file, replace, check, reason } => {
                import_file(&app, &file, replace, check, reason.as_deref()).await?;
            }
            Self::Export => output::print_json(&geofences::export_areas(&app.core.db).await?)?,
            Self::Remove { area, reason, yes } => {
                ensure!(consent::ask_at_once(yes, &format!("remove {area} with its limits?"))?, "nothing was removed");
                let author = ChangeAuthor { actor: &cli_operator(), reason: Some(&reason) };
                geofences::remove_area(&app.core.db, &area, None, author).await?;
                output::print_escaped(&format!("{area} is removed."));
            }
            Self::Report { area, hours, threshold, json } => {
                let scope = ReportScope { area: area.as_ref(), hours, until: None, threshold };
                report::print_report(&app, scope, json).await?;
            }
            Self::Changes { area, limit, json } => print_changes(&app, area.as_ref(), limit, json).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn print_override(area: &AreaId, status: &str, until: Option<DateTime<Utc>>) {
    let until = until.map(|at| format!(" until {}", format_time(at))).unwrap_or_default();
    output::print_escaped(&format!("{area} is {status}{until}."));
}

async fn print_areas(app: &App, only: Option<&AreaId>, json: bool) -> anyhow::Result<()> {
    let wanted = |id: &AreaId| only.is_none_or(|only| only == id);
    let areas: Vec<_> = geofences::list_areas(&app.core.db).await?.into_iter().filter(|row| wanted(&row.id)).collect();
    let limits = limits::list_limits(&app.core.db, only).await?;
    let status: Vec<_> =
        area_status::area_statuses(&app.desk).await?.into_iter().filter(|row| wanted(&row.area_id)).collect();
    if json {
        return output::print_json(&serde_json::json!({ "areas": areas, "limits": limits, "status": status }));
    }
    if only.is_some() {
        let (limits, status) = (to_values(&limits)?, to_values(&status)?);
        for area in &to_values(&areas)? {
            show::print_area(area, &limits, &status);
        }
        return Ok(());
    }
    let rules = app.areas.rules.get();
    let rows = areas.iter().flat_map(|area| {
        let own: Vec<_> = status.iter().filter(|row| row.area_id == area.id).collect();
        let line =
            |service: String, waiting: String, threshold: String, mode: String, oldest: Option<DateTime<Utc>>| {
                let oldest = oldest.map(format_time);
                [
                    area.id.to_string(),
                    area.name.clone(),
                    area.priority.to_string(),
                    service,
                    waiting,
                    threshold,
                    mode,
                    or_dash(oldest),
                ]
            };
        if own.is_empty() {
            let mode = show::describe_mode("AUTO", rules.flag.enforcement_in(&area.id).as_str());
            vec![line("-".to_owned(), "0".to_owned(), "-".to_owned(), mode, None)]
        } else {
            let line = |row: &&AreaStatus| {
                let (waiting, threshold) = (row.waiting.to_string(), row.threshold.to_string());
                let mode = show::describe_mode(row.mode, row.enforcement.as_str());
                line(row.service_type.to_string(), waiting, threshold, mode, row.oldest_waiting_since)
            };
            own.iter().map(line).collect()
        }
    });
    output::print_rows(&HEADINGS, rows, NO_AREAS);
    Ok(())
}

/// Rows as the API answers them.
fn to_values<T: Serialize>(rows: &[T]) -> serde_json::Result<Vec<Value>> {
    rows.iter().map(serde_json::to_value).collect()
}

impl AreaFlagArgs {
    async fn run(self, app: &App) -> anyhow::Result<()> {
        let before = flag::load_flag(&app.core.db).await?;
        let mut flag = before.clone();
        flag.enabled = self.enabled.unwrap_or(before.enabled);
        flag.shadow_mode = self.shadow.unwrap_or(before.shadow_mode);
        flag.enabled_areas = named_or_before(self.areas, &before.enabled_areas);
        flag.enabled_channels = named_or_before(self.channels, &before.enabled_channels);
        flag.percentage = self.percentage.unwrap_or(before.percentage);
        if flag != before {
            let author = ChangeAuthor { actor: &cli_operator(), reason: self.reason.as_deref() };
            flag = flag::set_flag(&app.core.db, &flag, Some(before.version), author).await?;
        }
        if self.json {
            return output::print_json(&flag);
        }
        println!("enabled     {}", flag.enabled);
        println!("shadow mode {}", flag.shadow_mode);
        output::print_escaped(&format!("areas       {}", show_names(&flag.enabled_areas)));
        output::print_escaped(&format!("channels    {}", show_names(&flag.enabled_channels)));
        println!("percentage  {}", flag.percentage);
        println!("version     {}", flag.version);
        Ok(())
    }
}

/// Returns the names given; `all` stands for the empty list.
fn named_or_before<T: Clone + AsRef<str>>(given: Option<Vec<T>>, before: &[T]) -> Vec<T> {
    match given {
        Some(names) if names.len() == 1 && names[0].as_ref() == "all" => Vec::new(),
        Some(names) => names,
        None => before.to_vec(),
    }
}

fn show_names<T: AsRef<str>>(names: &[T]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    if names.is_empty() { "all".to_owned() } else { names.join(", ") }
}

async fn import_file(app: &App, file: &Path, replace: bool, check: bool, reason: Option<&str>) -> anyhow::Result<()> {
    let text = text_file::read_text(file)?;
    let parsed = import::parse_file(&text, |service_type| app.config.find_unknown_type(service_type));
    let AreaFile { areas, ignored } = parsed.with_context(|| format!("{} cannot be imported", file.display()))?;
    if !ignored.is_empty() {
        let names: Vec<&str> = ignored.iter().map(String::as_str).collect();
        output::print_note(&format!("Members that are not read: {}", names.join(", ")));
    }
    if check {
        println!("{} areas could be imported.", areas.len());
        return Ok(());
    }
    let author = ChangeAuthor { actor: &cli_operator(), reason };
    let (imported, removed) = geofences::import_areas(&app.core.db, &areas, replace, None, author).await?;
    println!("{imported} areas imported, {removed} removed.");
    Ok(())
}

async fn print_changes(app: &App, area: Option<&AreaId>, limit: u32, json: bool) -> anyhow::Result<()> {
    let changes = table::list_changes(&app.core.db, area, None, limit).await?;
    if json {
        return output::print_json(&changes);
    }
    let rows = changes.into_iter().map(|c| {
        let after = c.after.map(|after| output::shorten_text(&after.to_string(), 80));
        [format_time(c.at), c.actor, c.what, or_dash(c.area_id), or_dash(c.reason), or_dash(after)]
    });
    output::print_rows(&["AT", "ACTOR", "WHAT", "AREA", "REASON", "IS NOW"], rows, "Nothing was changed yet.");
    Ok(())
}
