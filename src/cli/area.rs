//! `dispatchq area list|show|set|override|flag|import|remove|report|changes`.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, ensure};
use chrono::{DateTime, Utc};

use super::{
    order::cli_operator,
    output::{self, format_time, or_dash},
};
use dispatch::{
    admission::limits::ForcedStatus,
    app::App,
    areas::{
        import,
        table::{
            self, ChangeAuthor, flag, geofences,
            limits::{self, LimitsChange},
            overrides,
        },
    },
    ids::{AreaId, ServiceType},
    reports::area_status,
};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Areas, and how each stands
    List {
        #[arg(long)]
        json: bool,
    },
    /// One area: its limits, and how it stands
    Show {
        area: AreaId,
        #[arg(long)]
        json: bool,
    },
    /// Change how many orders may wait in an area, and how long; what is not named stays
    #[command(
        after_help = "Example:\n  dispatchq area set JKT-PUSAT --service-type RIDE --max-waiting-orders 150 --reason \"Lebaran\""
    )]
    Set(Box<AreaSetArgs>),
    /// Decide for an area, whatever its count: force-busy, force-available; auto gives it back
    #[command(
        after_help = "Example:\n  dispatchq area override JKT-PUSAT force-busy --reason \"Banjir di area\" --for 2h"
    )]
    Override {
        area: AreaId,
        #[arg(value_enum)]
        status: WantedStatus,
        #[arg(long, value_parser = dispatch::plain_text::parse)]
        reason: Option<String>,
        /// How long it holds, such as 2h; without it until a person ends it
        #[arg(long = "for", value_name = "DURATION")]
        lasts: Option<humantime::Duration>,
    },
    /// Whether areas refuse orders at all, and for whom; without an option it is shown
    #[command(
        after_help = "Example:\n  dispatchq area flag --enabled true --shadow true --areas JKT-PUSAT,CGK-T3 --percentage 10"
    )]
    Flag(AreaFlagArgs),
    /// Add areas from GeoJSON (properties area_id, name, priority, geohashes), or bring known ones up to date
    Import {
        /// A FeatureCollection; "-" is standard input
        file: PathBuf,
        /// Remove the areas that are not in it
        #[arg(long)]
        replace: bool,
        /// Only say whether it could be imported
        #[arg(long)]
        check: bool,
        #[arg(long, value_parser = dispatch::plain_text::parse)]
        reason: Option<String>,
    },
    /// Remove an area with its limits
    Remove {
        area: AreaId,
        #[arg(long, value_parser = dispatch::plain_text::parse)]
        reason: Option<String>,
    },
    /// Utilisation, refusals and bypasses, hour by hour
    Report {
        #[arg(long)]
        area: Option<AreaId>,
        #[arg(long, default_value_t = 24)]
        hours: u32,
        #[arg(long)]
        json: bool,
    },
    /// Who changed what, and why
    Changes {
        #[arg(long)]
        area: Option<AreaId>,
        #[arg(long, default_value_t = 50)]
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
pub(super) struct AreaSetArgs {
    area: AreaId,
    #[arg(long)]
    service_type: ServiceType,
    /// Orders that may wait
    #[arg(long)]
    max_waiting_orders: Option<i64>,
    /// How long a driver may take to answer
    #[arg(long)]
    dispatch_timeout_sec: Option<i64>,
    /// From creation to a driver
    #[arg(long)]
    order_lifetime_sec: Option<i64>,
    /// Pause before the search restarts
    #[arg(long)]
    retry_interval_sec: Option<i64>,
    /// The same while the area is full, and what those who are refused are told to wait
    #[arg(long)]
    busy_retry_interval_sec: Option<i64>,
    /// Once full, the area stays busy for so long at least
    #[arg(long)]
    cooldown_period_sec: Option<i64>,
    /// And until fewer than this part of the limit wait
    #[arg(long)]
    low_water_percentage: Option<i32>,
    #[arg(long)]
    bypass_enabled: Option<bool>,
    /// Such as ELITE,VOYAGER
    #[arg(long, value_delimiter = ',')]
    bypass_loyalty_levels: Option<Vec<String>>,
    #[arg(long)]
    max_bypass_percentage: Option<i32>,
    /// Does the area take orders of this service type at all?
    #[arg(long)]
    enabled: Option<bool>,
    #[arg(long, value_parser = dispatch::plain_text::parse)]
    reason: Option<String>,
    /// Only if it has still this version
    #[arg(long)]
    if_version: Option<i64>,
}

#[derive(Debug, clap::Args)]
pub(super) struct AreaFlagArgs {
    #[arg(long)]
    enabled: Option<bool>,
    /// No request is refused; those that would have been are counted
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
    #[arg(long, value_parser = dispatch::plain_text::parse)]
    reason: Option<String>,
    #[arg(long)]
    json: bool,
}

impl Command {
    pub(super) async fn run(self, app: App) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { json } => print_areas(&app, None, json).await?,
            Self::Show { area, json } => {
                let known = geofences::list_areas(&app.db).await?.into_iter().any(|row| row.id == area);
                ensure!(known, "no area {area}; see: dispatchq area list");
                print_areas(&app, Some(&area), json).await?;
            }
            Self::Set(set) => set.run(&app).await?,
            Self::Override { area, status, reason, lasts } => {
                let until =
                    lasts.map(|d| chrono::TimeDelta::from_std(*d)).transpose()?.map(|d| app.rules.database_now() + d);
                let forced = match status {
                    WantedStatus::ForceBusy => Some((ForcedStatus::ForceBusy, until)),
                    WantedStatus::ForceAvailable => Some((ForcedStatus::ForceAvailable, until)),
                    WantedStatus::Auto => None,
                };
                let author = ChangeAuthor { actor: &cli_operator(), reason: reason.as_deref() };
                overrides::set_override(&app.db, &area, forced, None, author).await?;
                let status = forced.map_or("AUTO", |(status, _)| status.as_str());
                let until = until.map(|at| format!(" until {}", format_time(at))).unwrap_or_default();
                println!("{area} is {status}{until}.");
            }
            Self::Flag(flag) => flag.run(&app).await?,
            Self::Import { file, replace, check, reason } => {
                import_file(&app, &file, replace, check, reason.as_deref()).await?;
            }
            Self::Remove { area, reason } => {
                let author = ChangeAuthor { actor: &cli_operator(), reason: reason.as_deref() };
                geofences::remove_area(&app.db, &area, None, author).await?;
                println!("{area} is removed.");
            }
            Self::Report { area, hours, json } => print_report(&app, area.as_ref(), hours, json).await?,
            Self::Changes { area, limit, json } => print_changes(&app, area.as_ref(), limit, json).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn print_areas(app: &App, only: Option<&AreaId>, json: bool) -> anyhow::Result<()> {
    let wanted = |id: &AreaId| only.is_none_or(|only| only == id);
    let areas: Vec<_> = geofences::list_areas(&app.db).await?.into_iter().filter(|row| wanted(&row.id)).collect();
    let limits = limits::list_limits(&app.db, only).await?;
    let status: Vec<_> =
        area_status::area_statuses(app).await?.into_iter().filter(|row| wanted(&row.area_id)).collect();
    if json {
        return output::print_json(&serde_json::json!({ "areas": areas, "limits": limits, "status": status }));
    }
    let rows = areas.iter().flat_map(|area| {
        let own: Vec<_> = status.iter().filter(|row| row.area_id == area.id).collect();
        let line = |service: String, waiting: String, threshold: String, mode: &str, oldest: Option<DateTime<Utc>>| {
            let oldest = oldest.map(format_time);
            [
                area.id.to_string(),
                area.name.clone(),
                area.priority.to_string(),
                service,
                waiting,
                threshold,
                mode.to_owned(),
                or_dash(oldest),
            ]
        };
        if own.is_empty() {
            vec![line("-".to_owned(), "0".to_owned(), "-".to_owned(), "AUTO", None)]
        } else {
            let line = |row: &&area_status::AreaStatus| {
                let (waiting, threshold) = (row.waiting.to_string(), row.threshold.to_string());
                line(row.service_type.to_string(), waiting, threshold, row.mode, row.oldest_waiting_since)
            };
            own.iter().map(line).collect()
        }
    });
    let headings = ["AREA", "NAME", "PRIORITY", "SERVICE", "WAITING", "THRESHOLD", "MODE", "OLDEST SINCE"];
    output::print_rows(&headings, rows, "No areas. Add some: dispatchq area import FILE");
    Ok(())
}

impl AreaSetArgs {
    async fn run(self, app: &App) -> anyhow::Result<()> {
        ensure!(app.config.knows_service_type(&self.service_type), "unknown service type {}", self.service_type);
        let change = LimitsChange {
            service_type: self.service_type,
            max_waiting_orders: self.max_waiting_orders,
            waiting_timeout_sec: None,
            dispatch_timeout_sec: self.dispatch_timeout_sec,
            order_lifetime_sec: self.order_lifetime_sec,
            retry_interval_sec: self.retry_interval_sec,
            busy_retry_interval_sec: self.busy_retry_interval_sec,
            cooldown_period_sec: self.cooldown_period_sec,
            low_water_percentage: self.low_water_percentage,
            bypass_enabled: self.bypass_enabled,
            bypass_loyalty_levels: self.bypass_loyalty_levels,
            max_bypass_percentage: self.max_bypass_percentage,
            enabled: self.enabled,
            priority: None,
            reason: None,
        };
        let author = ChangeAuthor { actor: &cli_operator(), reason: self.reason.as_deref() };
        let row = limits::set_limits(&app.db, &self.area, &change, self.if_version, author).await?;
        println!(
            "{} {} has version {} now; it holds on all replicas within a second.",
            row.area_id, row.service_type, row.version
        );
        Ok(())
    }
}

impl AreaFlagArgs {
    async fn run(self, app: &App) -> anyhow::Result<()> {
        let before = flag::load_flag(&app.db).await?;
        let mut flag = before.clone();
        flag.enabled = self.enabled.unwrap_or(before.enabled);
        flag.shadow_mode = self.shadow.unwrap_or(before.shadow_mode);
        flag.enabled_areas = named_or_before(self.areas, &before.enabled_areas);
        flag.enabled_channels = named_or_before(self.channels, &before.enabled_channels);
        flag.percentage = self.percentage.unwrap_or(before.percentage);
        if flag != before {
            let author = ChangeAuthor { actor: &cli_operator(), reason: self.reason.as_deref() };
            flag = flag::set_flag(&app.db, &flag, Some(before.version), author).await?;
        }
        if self.json {
            return output::print_json(&flag);
        }
        println!("enabled     {}", flag.enabled);
        println!("shadow mode {}", flag.shadow_mode);
        println!("areas       {}", show_names(&flag.enabled_areas));
        println!("channels    {}", show_names(&flag.enabled_channels));
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

async fn import_file(
    app: &App,
    file: &PathBuf,
    replace: bool,
    check: bool,
    reason: Option<&str>,
) -> anyhow::Result<()> {
    let text = if file.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin())?
    } else {
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?
    };
    let areas = import::parse(&text).with_context(|| format!("{} cannot be imported", file.display()))?;
    if check {
        println!("{} areas could be imported.", areas.len());
        return Ok(());
    }
    let author = ChangeAuthor { actor: &cli_operator(), reason };
    let (imported, removed) = geofences::import_areas(&app.db, &areas, replace, None, author).await?;
    println!("{imported} areas imported, {removed} removed.");
    Ok(())
}

async fn print_report(app: &App, area: Option<&AreaId>, hours: u32, json: bool) -> anyhow::Result<()> {
    let stretches = area_status::list_area_hours(app, area, hours).await?;
    if json {
        return output::print_json(&stretches);
    }
    let rows = stretches.into_iter().map(|s| {
        [
            format_time(s.hour),
            s.area_id.into_string(),
            s.service_type.into_string(),
            s.most_waiting.to_string(),
            format!("{:.0} %", s.mean_utilization * 100.0),
            s.rejected.to_string(),
            s.would_reject.to_string(),
            s.bypassed.to_string(),
        ]
    });
    let headings = ["HOUR", "AREA", "SERVICE", "MOST WAITING", "UTILISATION", "REFUSED", "IN SHADOW", "BYPASSED"];
    output::print_rows(&headings, rows, "Nothing was kept in that time; see [schedules] statistics.");
    Ok(())
}

async fn print_changes(app: &App, area: Option<&AreaId>, limit: u32, json: bool) -> anyhow::Result<()> {
    let changes = table::list_changes(&app.db, area, None, limit).await?;
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
