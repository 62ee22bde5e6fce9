//! What the tables, and the report of areas that is made of them, say of requests for places.

use crate::testbed::place_log::{PlaceCounts, PlaceLine};
use dispatch::{
    app::App,
    reports::{
        area_report::{self, ReportScope},
        area_status,
    },
};
use foundation::db::Pool;

use super::ledgers::PlaceLedger;

/// The ledger that knows everything.
pub(super) const COUNTS: &str = "counts";
/// More than any replay lasts.
const HOURS: u32 = 8_760;

const ALL_KNOW: &[PlaceLine] = &[PlaceLine::Refused, PlaceLine::Bypassed, PlaceLine::InShadow];

/// Reads them all. The processes must have ended: what they counted in their last second is written then.
pub(super) async fn read_ledgers(app: &App) -> anyhow::Result<Vec<PlaceLedger>> {
    // So that the snapshots have what was counted since the last.
    app.rules.reload_if_changed(&app.db, &app.config.admission).await?;
    area_status::save_snapshot(app).await?;
    Ok(vec![
        read_counts(&app.db).await?,
        read_orders(&app.db).await?,
        read_shadow_refusals(&app.db).await?,
        read_snapshots(&app.db).await?,
        read_report(app).await?,
    ])
}

async fn read_counts(db: &Pool) -> Result<PlaceLedger, sqlx::Error> {
    const KNOWS: &[PlaceLine] = &[
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
    ];
    let rows: Vec<(String, String, String, String, i64, i64)> = sqlx::query_as(
        "-- replay counts of admission
         SELECT area_id, source, verdict, cause, waiting, sum(requests)::bigint
         FROM admission_counts GROUP BY area_id, source, verdict, cause, waiting",
    )
    .fetch_all(db)
    .await?;
    let mut counts = PlaceCounts::default();
    for (area, source, verdict, cause, waiting, requests) in rows {
        if let Some((own, both)) = lines_of(&verdict, &source) {
            counts.add(&area, both, requests);
            // Clients hear of no area, and ask again.
            if cause != "unavailable" {
                counts.add(&area, own, requests);
            }
        }
        if verdict == "REFUSED" && ["threshold", "disabled", "forced"].contains(&cause.as_str()) {
            counts.add(&area, PlaceLine::ServerBusy, requests);
        }
        if cause == "threshold" {
            counts.add(&area, PlaceLine::ThresholdReached, requests);
        }
        if source == "check" && waiting >= 0 && !area.is_empty() && cause != "unavailable" {
            counts.add_checks(&area, waiting, requests);
        }
    }
    Ok(PlaceLedger { by: COUNTS, knows: KNOWS, knows_outside: true, counts })
}

/// The line of one source, and that of both.
fn lines_of(verdict: &str, source: &str) -> Option<(PlaceLine, PlaceLine)> {
    Some(match (verdict, source) {
        ("REFUSED", "check") => (PlaceLine::ChecksRefused, PlaceLine::Refused),
        ("REFUSED", "create") => (PlaceLine::CreationsRefused, PlaceLine::Refused),
        ("BYPASSED", "check") => (PlaceLine::ChecksBypassed, PlaceLine::Bypassed),
        ("BYPASSED", "create") => (PlaceLine::CreationsBypassed, PlaceLine::Bypassed),
        ("WOULD_REFUSE", "check") => (PlaceLine::ChecksInShadow, PlaceLine::InShadow),
        ("WOULD_REFUSE", "create") => (PlaceLine::CreationsInShadow, PlaceLine::InShadow),
        _ => return None,
    })
}

/// What orders keep of how they came.
async fn read_orders(db: &Pool) -> Result<PlaceLedger, sqlx::Error> {
    let rows: Vec<(String, String, i64)> = sqlx::query_as(
        "-- replay admission of orders
         SELECT coalesce(area_id, ''), admission, count(*) FROM orders WHERE admission IS NOT NULL GROUP BY 1, 2",
    )
    .fetch_all(db)
    .await?;
    let mut counts = PlaceCounts::default();
    for (area, admission, orders) in rows {
        if let Some((own, _)) = lines_of(&admission, "create") {
            counts.add(&area, own, orders);
        }
    }
    let knows = &[PlaceLine::CreationsBypassed, PlaceLine::CreationsInShadow];
    Ok(PlaceLedger { by: "orders", knows, knows_outside: true, counts })
}

async fn read_shadow_refusals(db: &Pool) -> Result<PlaceLedger, sqlx::Error> {
    let rows: Vec<(String, String, i64)> = sqlx::query_as(
        "-- replay shadow refusals
         SELECT area_id, source, count(*) FROM shadow_refusals GROUP BY 1, 2",
    )
    .fetch_all(db)
    .await?;
    let mut counts = PlaceCounts::default();
    for (area, source, requests) in rows {
        if let Some((own, _)) = lines_of("WOULD_REFUSE", &source) {
            counts.add(&area, own, requests);
        }
    }
    let knows = &[PlaceLine::ChecksInShadow, PlaceLine::CreationsInShadow];
    Ok(PlaceLedger { by: "shadow_refusals", knows, knows_outside: true, counts })
}

async fn read_snapshots(db: &Pool) -> Result<PlaceLedger, sqlx::Error> {
    let rows: Vec<(String, i64, i64, i64)> = sqlx::query_as(
        "-- replay snapshots of areas
         SELECT area_id, sum(rejected)::bigint, sum(bypassed)::bigint, sum(would_reject)::bigint
         FROM waiting_snapshots GROUP BY 1",
    )
    .fetch_all(db)
    .await?;
    let mut counts = PlaceCounts::default();
    for (area, refused, bypassed, in_shadow) in rows {
        add_all(&mut counts, &area, [refused, bypassed, in_shadow]);
    }
    Ok(PlaceLedger { by: "snapshots", knows: ALL_KNOW, knows_outside: false, counts })
}

async fn read_report(app: &App) -> Result<PlaceLedger, sqlx::Error> {
    let scope = ReportScope { area: None, hours: HOURS, until: None, threshold: None };
    let report = area_report::load_area_report(app, scope).await?;
    let mut counts = PlaceCounts::default();
    for area in report.areas {
        add_all(&mut counts, &area.area_id, [area.rejected, area.bypassed, area.would_reject]);
    }
    Ok(PlaceLedger { by: "report", knows: ALL_KNOW, knows_outside: true, counts })
}

fn add_all(counts: &mut PlaceCounts, area: &str, all: [i64; 3]) {
    for (line, count) in ALL_KNOW.iter().zip(all) {
        counts.add(area, *line, count);
    }
}
