//! `dispatchq area list|show|set|override|export|report` over the API.

use std::process::ExitCode;

use chrono::{TimeDelta, Utc};
use serde_json::{Value, json};

use super::{Command, HEADINGS, NO_AREAS, WantedStatus, print_override, show};
use crate::cli::{
    output,
    remote::{
        ApiClient,
        fields::{list_items, show_field, show_time},
        needs_database,
    },
};
use model::ids::AreaId;

/// Where areas are, below `/api/v1`.
const AREAS: [&str; 3] = ["admin", "dispatcher", "areas"];

impl Command {
    pub(in crate::cli) async fn run_over_api(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { json } => {
                let areas = api.get(&AREAS, &[]).await?;
                let status = api.get(&[&AREAS[..], &["status"]].concat(), &[]).await?;
                let (areas, status) = (list_items(&areas, "areas"), list_items(&status, "areas"));
                if json {
                    output::print_json(&json!({ "areas": areas, "status": status }))?;
                } else {
                    print_areas(areas, status);
                }
            }
            Self::Show { area, json } => {
                let shown = api.get(&[&AREAS[..], &[&*area]].concat(), &[]).await?;
                if json {
                    let (areas, limits, status) = ([&shown["area"]], &shown["limits"], &shown["status"]);
                    output::print_json(&json!({ "areas": areas, "limits": limits, "status": status }))?;
                } else {
                    show::print_area(&shown["area"], list_items(&shown, "limits"), list_items(&shown, "status"));
                }
            }
            Self::Set(set) => set.run_over_api(api).await?,
            Self::Override { area, status, reason, lasts } => {
                let lasts = lasts.map(TimeDelta::from_std).transpose()?;
                // By this machine's clock: the API tells no time.
                let until = lasts.map(|lasts| Utc::now() + lasts);
                let status = match status {
                    WantedStatus::ForceBusy => "FORCE_BUSY",
                    WantedStatus::ForceAvailable => "FORCE_AVAILABLE",
                    WantedStatus::Auto => "AUTO",
                };
                let body = json!({ "status": status, "reason": reason, "expires_at": until });
                api.post(&[&AREAS[..], &[&*area, "override"]].concat(), &body).await?;
                print_override(&area, status, until);
            }
            Self::Export => {
                output::print_json(&api.get(&["admin", "dispatcher", "areas.geojson"], &[]).await?)?;
            }
            Self::Report { area, hours, threshold, json } => {
                print_report(api, area.as_ref(), hours, threshold, json).await?;
            }
            _ => return Err(needs_database("of area, all but list, show, set, override, export and report")),
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn print_areas(areas: &[Value], status: &[Value]) {
    let rows = areas.iter().flat_map(|area| {
        let of_area = status.iter().filter(|row| row["area_id"] == area["id"]);
        let own: Vec<_> = of_area.map(|row| format_area(area, row)).collect();
        if own.is_empty() { vec![format_area(area, &Value::Null)] } else { own }
    });
    output::print_rows(&HEADINGS, rows, NO_AREAS);
}

/// An area, and how it stands for one service type.
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

async fn print_report(
    api: &ApiClient,
    area: Option<&AreaId>,
    hours: u32,
    threshold: Option<i64>,
    json: bool,
) -> anyhow::Result<()> {
    let mut query = vec![("hours", hours.to_string())];
    query.extend(area.map(|area| ("area_id", area.to_string())));
    query.extend(threshold.map(|threshold| ("threshold", threshold.to_string())));
    let report = api.get(&[&AREAS[..], &["report"]].concat(), &query).await?;
    if json {
        return output::print_json(&report);
    }
    let rows = list_items(&report, "hours").iter().chain(list_items(&report, "areas")).map(|h| {
        let tried = &h["what_if"];
        let count = |name: &str| tried[name].as_i64().unwrap_or_default();
        let (refused, requests) =
            (count("checks_refused") + count("creations_refused"), count("checks") + count("creations"));
        [
            if h["hour"].is_null() { "all".to_owned() } else { show_time(h, "hour") },
            show_field(h, "area_id"),
            show_field(h, "service_type"),
            show_field(h, "most_waiting"),
            format!("{:.0} %", h["mean_utilization"].as_f64().unwrap_or_default() * 100.0),
            show_field(h, "rejected"),
            show_field(h, "would_reject"),
            show_field(h, "bypassed"),
            if tried.is_null() { "-".to_owned() } else { format!("{refused} of {requests}") },
        ]
    });
    let tried = threshold.map_or_else(|| "WITH --threshold".to_owned(), |n| format!("WITH {n}"));
    let headings =
        ["HOUR", "AREA", "SERVICE", "MOST WAITING", "UTILISATION", "REFUSED", "IN SHADOW", "BYPASSED", tried.as_str()];
    output::print_rows(&headings, rows, "Nothing was kept in that time; see [schedules] statistics.");
    Ok(())
}
