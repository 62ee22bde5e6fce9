//! Counts of admission requests from the tables, and from the report of areas that is made from them.

use super::ledgers::PlaceLedger;
use crate::testbed::place_log::{PlaceCounts, PlaceLine};
use app::App;
use desk::capability::Desk;
use desk::reports::{
    area_report::{self, ReportScope},
    area_status,
};
use foundation::db::Pool;

const LEDGERS: &str = include_str!("ledgers.sql");
/// Source with all counts.
pub(super) const COUNTS: &str = "counts";
/// Hours of the report, more than any replay lasts.
const HOURS: u32 = 8_760;

const ALL_KNOW: &[PlaceLine] = &[PlaceLine::Refused, PlaceLine::Bypassed, PlaceLine::InShadow];

/// Each table with the lines that it counts, and whether it also counts requests outside all areas.
const TABLES: [(&str, &[PlaceLine], bool); 4] = [
    (
        COUNTS,
        &[
            PlaceLine::ChecksRefused,
            PlaceLine::CreationsRefused,
            PlaceLine::Refused,
            PlaceLine::ChecksBypassed,
            PlaceLine::CreationsBypassed,
            PlaceLine::Bypassed,
            PlaceLine::ChecksInShadow,
            PlaceLine::CreationsInShadow,
            PlaceLine::InShadow,
            PlaceLine::ServerBusy,
            PlaceLine::ThresholdReached,
            PlaceLine::Checks,
            PlaceLine::WaitingMet,
            PlaceLine::MostWaiting,
        ],
        true,
    ),
    ("orders", &[PlaceLine::CreationsBypassed, PlaceLine::CreationsInShadow], true),
    ("shadow_refusals", &[PlaceLine::ChecksInShadow, PlaceLine::CreationsInShadow], true),
    ("snapshots", ALL_KNOW, false),
];

/// Reads the counts of all tables. The processes must have ended, because they write the counts of their last second
/// then.
pub(super) async fn read_ledgers(app: &App) -> anyhow::Result<Vec<PlaceLedger>> {
    // Saves a snapshot with the counts since the last one.
    app.areas.reload_if_changed().await?;
    area_status::save_snapshot(&app.desk).await?;
    let rows: Vec<(String, String, String, i64)> = sqlx::query_as(LEDGERS).fetch_all(&app.core.db).await?;
    let mut ledgers = Vec::new();
    for (by, knows, knows_outside) in TABLES {
        let mut counts = PlaceCounts::default();
        for (_, area, line, count) in rows.iter().filter(|(table, ..)| table == by) {
            counts.add(area, serde_json::from_value(line.as_str().into())?, *count);
        }
        if by == COUNTS {
            add_waiting(&mut counts, &app.core.db).await?;
        }
        ledgers.push(PlaceLedger { by, knows, knows_outside, counts });
    }
    ledgers.push(read_report(&app.desk).await?);
    Ok(ledgers)
}

/// Adds the numbers of waiting orders that checks returned.
async fn add_waiting(counts: &mut PlaceCounts, db: &Pool) -> Result<(), sqlx::Error> {
    let rows: Vec<(String, i64, i64)> = sqlx::query_as(
        "-- replay waiting orders that checks met
         SELECT area_id, waiting, sum(requests)::bigint FROM admission_counts
         WHERE source = 'check' AND waiting >= 0 AND area_id <> '' AND cause <> 'unavailable' GROUP BY 1, 2",
    )
    .fetch_all(db)
    .await?;
    for (area, waiting, requests) in rows {
        counts.add_checks(&area, waiting, requests);
    }
    Ok(())
}

async fn read_report(desk: &Desk) -> Result<PlaceLedger, sqlx::Error> {
    let scope = ReportScope { area: None, hours: HOURS, until: None, threshold: None };
    let report = area_report::load_area_report(desk, scope).await?;
    let mut counts = PlaceCounts::default();
    for area in report.areas {
        for (line, count) in ALL_KNOW.iter().zip([area.rejected, area.bypassed, area.would_reject]) {
            counts.add(&area.area_id, *line, count);
        }
    }
    Ok(PlaceLedger { by: "report", knows: ALL_KNOW, knows_outside: true, counts })
}
