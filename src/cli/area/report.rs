//! `dispatchq area report`: every hour and area, then the whole stretch of each area.

use super::super::output::{self, format_time, or_dash};
use app::App;
use desk::reports::area_report::{self, ReportScope};

pub(super) async fn print_report(app: &App, scope: ReportScope<'_>, json: bool) -> anyhow::Result<()> {
    let report = area_report::load_area_report(&app.desk, scope).await?;
    if json {
        return output::print_json(&report);
    }
    // The hours, then the whole stretch of each area.
    let rows = report.hours.into_iter().chain(report.areas).map(|h| {
        let tried = h.what_if.map(|tried| {
            let (refused, requests) = (tried.checks_refused + tried.creations_refused, tried.checks + tried.creations);
            format!("{refused} of {requests}")
        });
        [
            h.hour.map_or_else(|| "all".to_owned(), format_time),
            h.area_id.into_string(),
            h.service_type.into_string(),
            h.most_waiting.to_string(),
            format!("{:.0} %", h.mean_utilization * 100.0),
            h.rejected.to_string(),
            h.would_reject.to_string(),
            h.bypassed.to_string(),
            or_dash(tried),
        ]
    });
    let tried = report.threshold.map_or_else(|| "WITH --threshold".to_owned(), |n| format!("WITH {n}"));
    let headings =
        ["HOUR", "AREA", "SERVICE", "MOST WAITING", "UTILISATION", "REFUSED", "IN SHADOW", "BYPASSED", tried.as_str()];
    output::print_rows(&headings, rows, "Nothing was kept in that time; see [schedules] statistics.");
    Ok(())
}
