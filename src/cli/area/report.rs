//! `dispatchq area report`: a row for each hour and area, then a total for each area.

use model::ids::AreaId;

use super::dispatcher_path;
use crate::cli::{
    output,
    remote::{
        ApiClient,
        fields::{list_items, show_field, show_time},
    },
};

/// Prints the last `hours`. With `threshold`, prints also what that threshold would have refused.
pub(super) async fn print_report(
    api: &ApiClient,
    area: Option<&AreaId>,
    (hours, threshold): (u32, Option<i64>),
    json: bool,
) -> anyhow::Result<()> {
    let mut query = vec![("hours", hours.to_string())];
    query.extend(area.map(|area| ("area_id", area.to_string())));
    query.extend(threshold.map(|threshold| ("threshold", threshold.to_string())));
    let report = api.get(&dispatcher_path(&["areas", "report"]), &query).await?;
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
    output::print_rows(&headings, rows, "No statistics for that time; see [schedules] statistics.");
    Ok(())
}
