//! Page of one area: its load and refusals hour by hour, and the refusals that another threshold would have caused.

use axum::{
    extract::{Path, Query, State, rejection::QueryRejection},
    response::Response,
};
use serde::Deserialize;

use super::roles::STAFF;
use crate::{
    catalogue::{Words, fill, tr},
    form::{encode_component, read_query, write_query},
    page::{Shell, render},
    page_error::PageError,
    session::SignedIn,
    shown::{Moment, describe_share},
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
    tr("areas.hour"),
    tr("common.service_type"),
    tr("areas.most_waiting_orders"),
    tr("areas.average_utilization"),
    tr("common.refused"),
    tr("areas.admitted_shadow_mode"),
    tr("areas.admitted_bypass"),
    tr("areas.compared_threshold"),
];

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
            text => text
                .parse::<u32>()
                .ok()
                .filter(|hours| (1..=MOST_HOURS).contains(hours))
                .ok_or_else(|| PageError::Invalid(fill!("areas.hours_number_from_1", most = MOST_HOURS))),
        }
    }

    fn to_threshold(&self) -> Result<Option<i64>, PageError> {
        match self.threshold.trim() {
            "" => Ok(None),
            text => {
                let threshold = text.parse::<i64>().ok().filter(|threshold| (0..=MOST_WAITING).contains(threshold));
                threshold
                    .map(Some)
                    .ok_or_else(|| PageError::Invalid(fill!("areas.threshold_out_of_range", most = MOST_WAITING)))
            }
        }
    }
}

fn what_if_text(what_if: Option<WhatIf>) -> String {
    what_if.map_or_else(String::new, |WhatIf { checks, checks_refused, creations, creations_refused }| {
        let (asked, refused) = (checks + creations, checks_refused + creations_refused);
        fill!("areas.refused", refused, asked)
    })
}

fn row_of(hour: AreaHour) -> TableRow {
    TableRow::plain(vec![
        hour.hour.map_or_else(|| Cell::text(tr("areas.all_these_hours")), |begin| Cell::html(Moment(begin))),
        Cell::text(&hour.service_type),
        Cell::number(hour.most_waiting),
        Cell::number(describe_share(hour.mean_utilization)),
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
        return Err(PageError::NotFound(tr("areas.no_area_id")));
    }
    // The row with the sum comes first, then one row per hour.
    let rows = areas.into_iter().chain(by_hour).map(row_of).collect();
    let note = match threshold {
        None => tr("areas.note").into(),
        Some(threshold) => fill!("areas.note_with_threshold", threshold),
    };
    let title = match name {
        Some(name) => fill!("areas.title_with_name", id, name),
        None => fill!("areas.title", id),
    };
    let shell = Shell::for_person(&app.config, &person, "/areas", title, None).made_at(until).live(REFRESH_S);
    let here = format!("/areas/{}{}", encode_component(id.as_str()), query.to_query());
    let page = TablePage {
        note,
        filters: vec![
            Field::text("hours", tr("areas.hours"), &query.hours),
            Field::text("threshold", tr("areas.threshold_compare"), &query.threshold),
        ],
        if_empty: (tr("areas.no_data_these_hours"), tr("areas.worker_records_state_areas")),
        ..TablePage::new(shell, &here, &HEADINGS, rows)
    };
    render(&page)
}
