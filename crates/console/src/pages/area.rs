//! Page of one area: its load and refusals hour by hour, and the refusals that another threshold would have caused.

use axum::{
    extract::{Path, Query, State, rejection::QueryRejection},
    response::Response,
};
use serde::Deserialize;

use super::roles::STAFF;
use crate::{
    form::{encode_component, read_query, write_query},
    language::{Words, both, say},
    page::{Shell, render},
    page_error::PageError,
    session::SignedIn,
    shown::Moment,
    table::{Cell, Field, TablePage, TableRow},
};
use app::App;
use desk::reports::area_report::{self, AreaHour, AreaReport, ReportScope, WhatIf};
use model::ids::AreaId;

/// Default number of hours on the page.
const HOURS: u32 = 24;
/// Seconds between refreshes. Snapshots of areas are a minute apart.
const REFRESH_S: u32 = 60;
const MOST_HOURS: u32 = 7 * 24;
const MOST_WAITING: i64 = 1_000_000;

const HEADINGS: [Words; 8] = [
    both("Hour", "Jam"),
    both("Service", "Layanan"),
    both("Most waiting", "Terbanyak menunggu"),
    both("Mean utilisation", "Rata-rata keterisian"),
    both("Refused", "Ditolak"),
    both("Shadow mode let in", "Diterima oleh mode bayangan"),
    both("Bypassed", "Dilewatkan"),
    both("At the other threshold", "Pada ambang batas lain"),
];

pub(super) const NO_AREA: Words = both("There is no area of this id.", "Tidak ada wilayah dengan id ini.");

/// Returns the address of an area's page. `base` is the console's path.
pub(super) fn area_page(base: &str, id: &str) -> String {
    format!("{base}/areas/{}", encode_component(id))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AreaQuery {
    hours: String,
    threshold: String,
}

impl AreaQuery {
    fn to_query(&self) -> String {
        write_query(&[("hours", &self.hours), ("threshold", &self.threshold)])
    }

    fn to_hours(&self) -> Result<u32, PageError> {
        match self.hours.trim() {
            "" => Ok(HOURS),
            text => text.parse::<u32>().ok().filter(|hours| (1..=MOST_HOURS).contains(hours)).ok_or_else(|| {
                PageError::Invalid(say!("Hours are 1 to {MOST_HOURS}.", "Jam bernilai 1 sampai {MOST_HOURS}."))
            }),
        }
    }

    fn to_threshold(&self) -> Result<Option<i64>, PageError> {
        match self.threshold.trim() {
            "" => Ok(None),
            text => {
                let threshold = text.parse::<i64>().ok().filter(|threshold| (0..=MOST_WAITING).contains(threshold));
                threshold.map(Some).ok_or_else(|| {
                    PageError::Invalid(say!(
                        "A threshold is 0 to {MOST_WAITING} orders.",
                        "Ambang batas bernilai 0 sampai {MOST_WAITING} pesanan."
                    ))
                })
            }
        }
    }
}

fn what_if_text(what_if: Option<WhatIf>) -> String {
    what_if.map_or_else(String::new, |WhatIf { checks, checks_refused, creations, creations_refused }| {
        let (asked, refused) = (checks + creations, checks_refused + creations_refused);
        say!("{refused} of {asked} refused", "{refused} dari {asked} ditolak")
    })
}

fn row_of(hour: AreaHour) -> TableRow {
    TableRow::plain(vec![
        hour.hour.map_or_else(
            || Cell::text(both("all of these hours", "seluruh jam ini")),
            |begin| Cell::html(Moment(begin)),
        ),
        Cell::text(&hour.service_type),
        Cell::number(hour.most_waiting),
        Cell::number(format!("{:.0} %", hour.mean_utilization * 100.0)),
        Cell::number(hour.rejected),
        Cell::number(hour.would_reject),
        Cell::number(hour.bypassed),
        Cell::text(what_if_text(hour.what_if)),
    ])
}

pub(crate) async fn show_page(
    State(app): State<App>,
    person: SignedIn,
    Path(id): Path<String>,
    query: Result<Query<AreaQuery>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&STAFF)?;
    let app = app.showing();
    let id = AreaId::from(id);
    let query: AreaQuery = read_query(query)?;
    let (hours, threshold) = (query.to_hours()?, query.to_threshold()?);
    let scope = ReportScope { area: Some(&id), hours, until: None, threshold };
    let AreaReport { until, threshold, hours: by_hour, areas, .. } =
        area_report::load_area_report(&app.desk, scope).await?;
    let name = app.areas.rules.get().geofence.get(&id).map(|area| area.name.clone());
    if name.is_none() && areas.is_empty() {
        return Err(PageError::NotFound(NO_AREA));
    }
    // The row with the sum comes first, then one row per hour.
    let rows = areas.into_iter().chain(by_hour).map(row_of).collect();
    let note = match threshold {
        None => both(
            "The newest hour first. Refused are checks and creations, whatever the cause.",
            "Jam terbaru lebih dulu. Yang ditolak adalah pemeriksaan dan pembuatan, apa pun sebabnya.",
        )
        .into(),
        Some(threshold) => say!(
            "The newest hour first. The last column says what a threshold of {threshold} would have refused, as many as waited then; that fewer would have waited later is left aside.",
            "Jam terbaru lebih dulu. Kolom terakhir menyatakan yang akan ditolak ambang batas {threshold}, menurut yang menunggu saat itu; bahwa kemudian akan lebih sedikit yang menunggu tidak dihitung."
        ),
    };
    let title = match name {
        Some(name) => say!("Area {id}, {name}", "Wilayah {id}, {name}"),
        None => say!("Area {id}", "Wilayah {id}"),
    };
    let shell = Shell::for_person(&app.config, &person, "/areas", title, None).made_at(until).live(REFRESH_S);
    let here = format!("/areas/{}{}", encode_component(id.as_str()), query.to_query());
    let page = TablePage {
        note,
        filters: vec![
            Field::text("hours", both("Hours", "Jam"), &query.hours),
            Field::text("threshold", both("Try a threshold out", "Coba ambang batas"), &query.threshold),
        ],
        if_empty: (
            both("Nothing was counted", "Belum ada yang dihitung"),
            both(
                "A worker writes down every minute how areas stand, and every request for a place is counted.",
                "Pekerja mencatat setiap menit keadaan wilayah, dan setiap permintaan tempat dihitung.",
            ),
        ),
        ..TablePage::new(shell, &here, &HEADINGS, rows)
    };
    render(&page)
}
